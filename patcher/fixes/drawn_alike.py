"""Let all ranks take rank 0's random numbers as soon as there is a process group."""

from __future__ import annotations

import ast

from ..analysis.batches.random_draws import ALIKE
from ..analysis.training.frameworks import RANK_SAMPLERS
from ..analysis.training.program import Program
from ..editing.edits import Define, Edit, Insert
from ..source.module import Module
from ..source.tree import precedes
from .drawn_apart import knew_no_ranks


def draw_alike(module: Module, group: ast.Call) -> tuple[Edit, ...]:
    """Edits behind a process group that let all ranks draw what rank 0 would draw next."""
    return (Insert(module.statement(group), f"{ALIKE}()", "after"), Define(ALIKE))


def lone_group(program: Program) -> tuple[Module, ast.Call] | None:
    """The one process group of a script whose ranks have to draw one data set; None for others.

    So it is where the script knew of no ranks, and where its own samplers deal among them.
    """
    groups = program.calls_to("init_process_group")
    if len(groups) != 1:
        return None
    is_meant = knew_no_ranks(program) or bool(program.calls_to(*RANK_SAMPLERS))
    return groups[0] if is_meant else None


def is_above(module: Module, group: ast.Call, drawing: Module, draw: ast.Call) -> bool:
    """Whether a draw comes before the group, in its function or at module level."""
    function = drawing.function(draw)
    return (
        drawing is module and function in (None, module.function(group)) and precedes(draw, group)
    )


def are_alike(module: Module, group: ast.Call) -> bool:
    """Whether ranks take rank 0's random numbers as soon as there is a group."""
    block = module.body(module.statement(group))
    return any(module.statement(call) in block for call in module.calls_to(ALIKE))
