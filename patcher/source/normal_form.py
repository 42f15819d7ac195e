"""Give statements that bind a name one form in the tree, whatever their spelling.

``x: T = v`` and ``(x := v)`` become assignments, ``x = x + v`` an augmented one, so that whoever
asks for those finds these as well. Places are those of the source, and no statement is added.
"""

from __future__ import annotations

import ast
from typing import Any


class AnnotatedAssign(ast.Assign):
    """AnnotatedAssign(expr* targets, expr annotation, expr value)"""

    _fields = ("targets", "annotation", "value")
    annotation: ast.expr


class AddedAssign(ast.AugAssign):
    """AddedAssign(expr target, operator op, expr value)"""

    whole: ast.BinOp  # ``x + v``, with the target for the ``x``; it has the statement's number


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
                for index, stmt in enumerate(block):
                    if not is_class:
                        block[index] = stmt = normal(stmt)
                    pending.append((stmt, type(stmt) is ast.ClassDef))
        for name in ("handlers", "cases"):
            pending += [(part, False) for part in getattr(node, name, ())]


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
