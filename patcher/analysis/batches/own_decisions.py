"""Decisions behind a training loop that each rank takes by what it has seen of the batches."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ...source.module import Module
from ...source.tree import FUNCTIONS, everywhere, within
from ..language.name_flow import names_in, roots
from ..training.program import Program
from .batch_taint import NotDealtError, apart

MAX_CALLERS = 3


def refuse_own_decisions(
    program: Program, module: Module, stmt: ast.stmt, own: set[str] | frozenset[str], depth: int = 0
) -> None:
    """Raise where code behind a statement decides by names that each rank has its own value of.

    Such as a test around a save or an evaluation, or the step of a schedule by the loss.
    """
    live = set(own)
    for block in blocks_behind(module, stmt):
        walk(program, module, stmt, block, live)
        if not live:
            return
    function = module.function(stmt)
    if function is None or depth > MAX_CALLERS:
        return
    if not any(
        each.value is not None and names_in(each.value) & own
        for each in within(function.body, ast.Return)
    ):
        return
    for where, call in program.callers(function):
        home = where.statement(call)
        names = {name for target in getattr(home, "targets", []) for name in roots(target)}
        if isinstance(home, ast.If | ast.While) or is_stepped_by(where, call):
            raise NotDealtError(f"each rank would decide by its own in line {home.lineno}")
        if names:
            refuse_own_decisions(program, where, home, names, depth + 1)


def blocks_behind(module: Module, stmt: ast.stmt) -> Iterator[list[ast.stmt]]:
    """What runs behind a statement in its function: also at the head of the loops around it."""
    child: ast.AST = stmt
    for up in module.ancestors(stmt):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(up, name, None)
            if isinstance(block, list) and child in block and isinstance(child, ast.stmt):
                index = block.index(child)
                yield block[index + 1 :]
                if isinstance(up, ast.For | ast.While):
                    yield block[:index]
        if isinstance(up, FUNCTIONS):
            return
        child = up


def walk(
    program: Program, module: Module, start: ast.stmt, body: list[ast.stmt], live: set[str]
) -> None:
    """Follow names through a block; raise where ranks decide by them."""
    for stmt in body:
        match stmt:
            case ast.Assign() | ast.AugAssign() | ast.AnnAssign() if stmt.value is not None:
                targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
                names = set().union(*map(roots, targets))
                if names_in(stmt.value) & live:
                    live |= names
                elif isinstance(stmt, ast.Assign):
                    live -= {name for name in names if is_whole(targets, name)}
            case ast.If() | ast.While():
                if names_in(stmt.test) & live and any(
                    True for _ in apart(program, module, start, [*stmt.body, *stmt.orelse])
                ):
                    raise NotDealtError(f"each rank would decide by its own in line {stmt.lineno}")
                branches = [set(live), set(live)]
                walk(program, module, start, stmt.body, branches[0])
                walk(program, module, start, stmt.orelse, branches[1])
                live |= branches[0] | branches[1]
                live &= branches[0] | branches[1]
            case ast.For() | ast.With() | ast.Try():
                for name in ("body", "orelse", "finalbody"):
                    walk(program, module, start, getattr(stmt, name, []), live)
        for call in own_calls(stmt):
            is_step = isinstance(call.func, ast.Attribute) and call.func.attr == "step"
            if is_step and any(names_in(value) & live for value in call.args):
                raise NotDealtError(f"line {call.lineno} steps a schedule by a rank's own loss")


def own_calls(stmt: ast.stmt) -> list[ast.Call]:
    """The calls of a simple statement."""
    simple = isinstance(stmt, ast.Expr | ast.Assign | ast.Return)
    return everywhere(stmt, ast.Call) if simple else []


def is_whole(targets: Sequence[ast.expr], name: str) -> bool:
    """Whether an assignment replaces all of what a name stands for."""
    return any(
        isinstance(node, ast.Name) and node.id == name
        for target in targets
        for node in (target.elts if isinstance(target, ast.Tuple) else [target])
    )


def is_stepped_by(module: Module, call: ast.Call) -> bool:
    """``scheduler.step(train())``."""
    up = module.parents[call]
    return (
        isinstance(up, ast.Call)
        and isinstance(up.func, ast.Attribute)
        and up.func.attr == "step"
        and call in up.args
    )
