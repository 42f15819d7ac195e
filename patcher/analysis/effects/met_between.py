"""Places of a function between which all ranks meet."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import Function, precedes, within
from ..ranks.rank_reach import RANKS, roles_reaching
from ..training.program import Program
from .effects import effects_of_call, is_collective


def waits_between(
    program: Program,
    module: Module,
    first: ast.Call,
    stmt: ast.stmt,
    *,
    together: bool = False,
) -> bool:
    """Whether all ranks meet between a call and ``stmt`` below it, in a block around ``stmt``.

    At a barrier or another collective, or in a function that always comes to one, where every way
    to ``stmt`` calls it. ``together``: not where some come to the barrier here, others elsewhere.
    """
    above: set[ast.AST] = set()
    for node in (stmt, *module.ancestors(stmt)):
        if isinstance(node, Function):
            break
        if isinstance(node, ast.stmt):
            body = module.body(node)
            above |= set(body[: body.index(node)])
    return any(
        precedes(first, call)
        and precedes(call, stmt)
        and any(parent in above for parent in module.ancestors(call))
        and not (together and roles_reaching(program, module, call) & RANKS != RANKS)
        and (module.last_name(call.func) == "barrier" or always_meets(program, module, call, above))
        for call in within(module.scope_statements(stmt), ast.Call)
    )


def always_meets(program: Program, module: Module, call: ast.Call, above: set[ast.AST]) -> bool:
    """Whether a call is made on every way past ``above``, and always comes to a collective."""
    for up in module.ancestors(call):
        if isinstance(up, ast.If | ast.For | ast.While | ast.Try | ast.IfExp | ast.BoolOp):
            return False
        if up in above:
            break
    return any(
        is_collective(each.effect)
        and (each.always or each.effect.node is call)
        and each.roles >= RANKS
        for each in effects_of_call(program, module, call)
    )
