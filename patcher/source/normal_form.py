"""Give statements that bind a name one form in the tree, whatever their spelling.

``x: T = v`` and ``(x := v)`` become assignments, ``x = x + v`` an augmented one, so that whoever
asks for those finds these as well. Strings that stand for a comment go, docstrings stay. Places are
those of the source, and no statement is added.
"""

from __future__ import annotations

import ast
from itertools import pairwise
from typing import Any


class AnnotatedAssign(ast.Assign):
    """AnnotatedAssign(expr* targets, expr annotation, expr value)"""

    _fields = ("targets", "annotation", "value")
    annotation: ast.expr


class AddedAssign(ast.AugAssign):
    """AddedAssign(expr target, operator op, expr value)"""

    whole: ast.BinOp  # ``x + v``, with the target for the ``x``; it has the statement's number


DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# Node types of this module, and those that they are found as.
FOUND_AS: dict[type[ast.AST], type[ast.AST]] = {
    AnnotatedAssign: ast.Assign,
    AddedAssign: ast.AugAssign,
}


def normalize(tree: ast.Module) -> None:
    """Give a tree's statements their one form, in place; fields of classes stay as they are."""
    pending: list[tuple[Any, bool]] = [(tree, False)]
    while pending:
        node, is_class = pending.pop()
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if type(block) is list:
                leave_out_strings(block, has_docstring=name == "body" and type(node) in DOCUMENTED)
                for index, stmt in enumerate(block):
                    if not is_class:
                        block[index] = stmt = normal(stmt)
                    pending.append((stmt, type(stmt) is ast.ClassDef))
        for name in ("handlers", "cases"):
            pending += [(part, False) for part in getattr(node, name, ())]


def leave_out_strings(block: list[ast.stmt], *, has_docstring: bool) -> None:
    """Remove strings that do nothing and have their own lines, unless nothing else is there."""
    rest = [
        stmt
        for index, stmt in enumerate(block)
        if not is_string(stmt) or (has_docstring and index == 0) or shares_line(block, index)
    ]
    block[:] = rest or block[:1]


def shares_line(block: list[ast.stmt], index: int) -> bool:
    """Whether a statement is on a line with the one before or after it."""
    around = block[max(index - 1, 0) : index + 2]
    return any(one.end_lineno == two.lineno for one, two in pairwise(around))


def is_string(stmt: ast.stmt) -> bool:
    """Whether a statement is a string literal and nothing else."""
    match stmt:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
    return False


def normal(stmt: ast.stmt) -> ast.stmt:
    """A statement in its one form."""
    match stmt:
        case ast.AnnAssign(target=target, annotation=annotation, value=ast.expr() as value):
            plain = AnnotatedAssign(targets=[target], value=value)
            plain.annotation = annotation
            return ast.copy_location(plain, stmt)
        case ast.Expr(value=ast.NamedExpr(target=target, value=value)):
            return ast.copy_location(ast.Assign(targets=[target], value=value), stmt)
        case ast.Assign(
            targets=[ast.Name(id=name) as target],
            value=ast.BinOp(left=ast.Name(id=read), op=ast.Add() | ast.Sub() as op) as whole,
        ) if name == read:
            whole.left = target
            added = AddedAssign(target=target, op=op, value=whole.right)
            added.whole = whole
            return ast.copy_location(added, stmt)
    return stmt


def value_of(stmt: ast.Assign | AddedAssign) -> ast.expr:
    """What an assignment assigns: of ``x = x + v`` the whole sum."""
    return stmt.whole if isinstance(stmt, AddedAssign) else stmt.value
