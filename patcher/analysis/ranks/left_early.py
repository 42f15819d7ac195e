"""Ranks that meet others although they take another way through a function."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import precedes, same_code, within
from ..training.program import Program
from .rank_reach import RANKS, roles_reaching
from .rank_values import is_rank_test


def is_answered_around(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether one side calls in an inner function what the other one calls in that around it.

    Rank 0 steps with a closure that begins by a broadcast, and the others wait for that in a loop.
    """
    other_side = RANKS - roles_reaching(program, module, call)
    return any(
        same_code(other, call)
        and (is_inner(module, call, other) or is_inner(module, other, call))
        and roles_reaching(program, module, other) & RANKS == other_side
        for other in module.calls_to(module.last_name(call.func))
    )


def is_inner(module: Module, inner: ast.AST, outer: ast.AST) -> bool:
    """Whether a place lies in a function of the function around another place."""
    function, around = module.function(inner), module.function(outer)
    return function is not None and around is not None and module.function(function) is around


def meets_those_who_stay(module: Module, call: ast.Call) -> bool:
    """``if rank != 0: barrier(); return``, where the rest of the function has as many barriers.

    True for such a ``call``, of any collective. Counted are those that stand on the way from the
    test to the end of the function, in no other branch and no loop.
    """
    function = module.function(call)
    stmt = module.statement(call)
    gate = module.parents[stmt]
    if (
        function is None
        or not isinstance(gate, ast.If)
        or stmt not in gate.body
        or not isinstance(gate.body[-1], ast.Return)
        or not is_rank_test(module, gate.test)
    ):
        return False
    name = module.last_name(call.func)
    blocks = [gate.body]
    blocks += [module.body(up) for up in (gate, *module.ancestors(gate)) if isinstance(up, ast.If)]
    same = [
        other
        for other in within(function.body, ast.Call)
        if module.last_name(other.func) == name
        and any(module.body(module.statement(other)) is block for block in blocks)
    ]
    leaving = [other for other in same if module.statement(other) in gate.body]
    staying = [other for other in same if precedes(gate, other) and other not in leaving]
    return len(leaving) == len(staying)
