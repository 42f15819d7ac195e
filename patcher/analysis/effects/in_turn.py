"""Code that rank 0 runs ahead of the others, between two barriers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import FUNCTIONS, within
from ..ranks.rank_reach import RANKS, Role, roles_reaching
from ..training.program import Program

MAX_DEPTH = 4  # functions around a place


def goes_in_turn(program: Program, module: Module, node: ast.AST, depth: int = 0) -> bool:
    """Whether rank 0 comes to a place first, by barriers before and behind a statement around it.

    Or around the statements that call its function, also through others.
    """
    if any(is_between_barriers(program, module, stmt) for stmt in statements_around(module, node)):
        return True
    function = module.function(node)
    callers = [] if function is None or depth > MAX_DEPTH else program.callers(function)
    return bool(callers) and all(
        goes_in_turn(program, where, call, depth + 1) for where, call in callers
    )


def statements_around(module: Module, node: ast.AST) -> Iterator[ast.stmt]:
    """The statement of a node and those around it in its function."""
    for each in (node, *module.ancestors(node)):
        if isinstance(each, FUNCTIONS):
            return
        if isinstance(each, ast.stmt):
            yield each


def is_between_barriers(program: Program, module: Module, stmt: ast.stmt) -> bool:
    """Whether the other ranks wait before a statement, and rank 0 lets them go behind it."""
    block = module.body(stmt)
    index = block.index(stmt)
    sides = (block[:index][-1:], block[index + 1 :][:1])
    roles = [
        {
            role
            for each in side
            for call in within([each], ast.Call)
            if module.last_name(call.func) == "barrier"
            for role in roles_reaching(program, module, call) & RANKS
        }
        for side in sides
    ]
    return roles == [{Role.OTHER}, {Role.MAIN}]
