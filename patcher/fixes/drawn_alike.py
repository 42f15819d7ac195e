"""Let all ranks take rank 0's random numbers as soon as there is a process group."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ..analysis.batches.random_draws import ALIKE
from ..analysis.training.frameworks import RANK_SAMPLERS
from ..analysis.training.program import Program
from ..editing.edits import Define, Edit, Insert
from ..source.module import Module
from ..source.tree import FUNCTIONS, mentions, precedes
from .drawn_apart import knew_no_ranks


def draw_alike(module: Module, group: ast.AST) -> tuple[Edit, ...]:
    """Edits behind a process group that let all ranks draw what rank 0 would draw next."""
    return (Insert(module.statement(group), f"{ALIKE}()", "after"), Define(ALIKE))


def place_to_agree(
    program: Program, module: Module, group: ast.Call, seeds: Sequence[tuple[Module, ast.Call]]
) -> ast.stmt | None:
    """The statement behind which ranks are to take rank 0's numbers; None where none is sure.

    That of the group, or of the last seed of a rank's own behind it, in the group's function.
    """
    made = module.statement(group)
    function = module.function(group)
    behind: list[ast.stmt] = []
    for where, call in seeds:
        home, place = where, call
        while home.function(place) is not function:
            inner = home.function(place)
            callers = program.callers(inner) if inner is not None else []
            if len(callers) != 1 or len(behind) > len(seeds):
                return None
            ((home, place),) = callers
        stmt = home.statement(place)
        if home is module and precedes(made, stmt):
            behind.append(stmt)
        elif home is not module:
            return None
    if not behind:
        return made
    block = module.body(behind[-1])
    if any(stmt not in block for stmt in behind) or not is_passed(module, behind[-1]):
        return None
    return max(behind, key=block.index)


def is_passed(module: Module, stmt: ast.stmt) -> bool:
    """Whether all ranks surely come to a statement, once: nothing but a function is around it."""
    for up in module.ancestors(stmt):
        if isinstance(up, FUNCTIONS):
            return True
        if isinstance(up, ast.If) and mentions(up.test, "__name__"):
            continue
        if isinstance(up, ast.stmt):
            return False
    return True


def lone_group(program: Program) -> tuple[Module, ast.Call] | None:
    """The one process group of a script whose ranks have to draw one data set; None for others.

    So it is where the script knew of no ranks, and where its own samplers deal among them.
    """
    groups = program.calls_to("init_process_group")
    if len(groups) != 1:
        return None
    is_meant = knew_no_ranks(program) or bool(program.calls_to(*RANK_SAMPLERS))
    return groups[0] if is_meant else None


def is_above(module: Module, group: ast.AST, drawing: Module, draw: ast.Call) -> bool:
    """Whether a draw comes before the group, in its function or at module level."""
    function = drawing.function(draw)
    return (
        drawing is module and function in (None, module.function(group)) and precedes(draw, group)
    )


def are_alike(module: Module, group: ast.AST) -> bool:
    """Whether ranks take rank 0's random numbers as soon as there is a group."""
    block = module.body(module.statement(group))
    return any(
        module.statement(call) in block and precedes(group, call) for call in module.calls_to(ALIKE)
    )
