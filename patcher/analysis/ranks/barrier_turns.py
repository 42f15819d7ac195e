"""Where rank 0 comes first: the others wait at a barrier until it comes to one of its own.

What stands in between is run by rank 0 while they wait, and by them when it is through. So is what
stands under ``with main_process_first():``.
"""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import FUNCTIONS, Function, within
from ..language.names import answered_once
from ..training.program import Program
from .rank_0_ahead import AHEAD
from .rank_reach import RANKS, Role, roles_reaching

BARRIERS = ("barrier", "monitored_barrier")
MAX_DEPTH = 4


@answered_once
def turns(program: Program, module: Module) -> list[list[ast.stmt]]:
    """The statements of each turn: between the others' barrier and rank 0's, or under a with."""
    found = [*between_barriers(program, module)]
    for stmt in module.nodes(ast.With):
        for item in stmt.items:
            call = item.context_expr
            if isinstance(call, ast.Call) and lets_rank_0_first(program, module, call):
                found.append(stmt.body)
    return found


@answered_once
def between_barriers(program: Program, module: Module) -> list[list[ast.stmt]]:
    """The statements between a barrier of the others and the next one, of rank 0, in a block."""
    found: list[list[ast.stmt]] = []
    for call in module.calls_to(*BARRIERS):
        if roles_reaching(program, module, call) & RANKS != {Role.OTHER}:
            continue
        opening = test_of_rank(program, module, call)
        block = module.body(opening)
        behind = block[block.index(opening) + 1 :]
        for number, stmt in enumerate(behind):
            met = [each for each in within([stmt], ast.Call) if is_barrier(module, each)]
            if met:
                roles = {r for each in met for r in roles_reaching(program, module, each) & RANKS}
                if roles == {Role.MAIN} and number:
                    found.append(behind[:number])
                break
    return found


def is_barrier(module: Module, call: ast.Call) -> bool:
    return module.last_name(call.func) in BARRIERS


def test_of_rank(program: Program, module: Module, call: ast.Call) -> ast.stmt:
    """The test that keeps rank 0 from a barrier, or the barrier's own statement."""
    for up in module.ancestors(call):
        if isinstance(up, FUNCTIONS):
            break
        if isinstance(up, ast.If) and Role.MAIN in roles_reaching(program, module, up):
            return up
    return module.statement(call)


def lets_rank_0_first(program: Program, module: Module, call: ast.Call) -> bool:
    """``with zero_first(rank):``, of a function that yields between two barriers."""
    own = program.callees(module, call)
    if not own:
        return module.last_name(call.func) in AHEAD
    return any(
        within(turn, ast.Yield) and where.function(turn[0]) is function
        for where, function in own
        if where.calls_to(*BARRIERS)
        for turn in between_barriers(program, where)
    )


def is_in_turn(program: Program, module: Module, node: ast.AST) -> bool:
    """Whether a place of a function stands in a turn."""
    found = turns(program, module)
    if not found:
        return False
    around = [node]
    for up in module.ancestors(node):
        if isinstance(up, FUNCTIONS):
            break
        around.append(up)
    return any(stmt in turn for turn in found for stmt in around)


def goes_in_turn(program: Program, module: Module, node: ast.AST, depth: int = 0) -> bool:
    """Whether rank 0 comes to a place first, here or by all callers of its function."""
    if is_in_turn(program, module, node):
        return True
    function = module.function(node)
    callers = [] if function is None or depth > MAX_DEPTH else program.callers(function)
    return bool(callers) and all(
        goes_in_turn(program, where, call, depth + 1) for where, call in callers
    )


def may_be_in_turn(program: Program, module: Module, node: ast.AST) -> bool:
    """Whether ranks may come to a place in turns, also by a caller of its function."""
    if not any(turns(program, each) for each in program.modules):
        return False
    seen: set[Function] = set()
    pending = [(module, node)]
    while pending:
        where, place = pending.pop()
        if is_in_turn(program, where, place):
            return True
        function = where.function(place)
        if function is not None and function not in seen:
            seen.add(function)
            pending += program.callers(function)
    return False
