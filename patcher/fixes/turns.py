"""Edits by which ranks take turns with the batches that a script makes without a DataLoader."""

from __future__ import annotations

import ast

from ..analysis.batch_counts import refuse_horizons, sums_of_all
from ..analysis.batch_origins import refuse_order_of_sets
from ..analysis.batch_sources import batch_source
from ..analysis.batch_taint import NotDealtError, spread
from ..analysis.before_group import runs_before_group
from ..analysis.dealing import TURNS
from ..analysis.program import Program
from ..analysis.random_draws import draws_of, is_seeded
from ..analysis.summed_losses import refuse_summed_losses
from ..analysis.train_loops import TrainLoop
from ..editing.edits import Define, Edit, Insert, Rewrite
from ..source.module import Module

ALIKE = "draw_alike"


def edits_to_take_turns(program: Program, loop: TrainLoop) -> list[tuple[Module, Edit]]:
    """Edits that give each rank every n-th batch of a loop. Raises NotDealtError."""
    module, steps = loop.module, loop.steps
    source = batch_source(program, loop)
    assert isinstance(steps, ast.For)
    refuse_order_of_sets(program)
    taint = spread(module, steps.body, {*source.numbers, *source.items})
    refuse_horizons(program, loop, taint)
    refuse_summed_losses(program, loop, even_if_divided=True)
    sums = sums_of_all(program, loop, taint, source.numbers)
    draws = draws_of(program, module, steps)
    text = module.text(source.whole)
    edits: list[tuple[Module, Edit]] = [
        (module, Rewrite(source.whole, f"{TURNS}({text})")),
        (module, Define(TURNS)),
    ]
    for where, stmt in draws.ahead_of:
        edits += [(where, Insert(stmt, f"{ALIKE}()")), (where, Define(ALIKE))]
    groups = program.calls_to("init_process_group")
    unseeded = [each for each in draws.early if not is_seeded(*each)]
    for where, call in unseeded:
        if groups and runs_before_group(program, where, call):
            raise NotDealtError(
                f"each rank draws for itself in line {call.lineno}, before there is a process group"
            )
    if unseeded and groups:
        edits += start_alike(*groups[0])
    if sums:
        lines = "\n".join(f"{name} = gathered({name})" for name in sums)
        edits += [(module, Insert(steps, lines, "after")), (module, Define("gathered"))]
    return edits


def start_alike(module: Module, group: ast.Call) -> list[tuple[Module, Edit]]:
    """Edits that let all ranks start with the random numbers of rank 0."""
    stmt = module.statement(group)
    gate = module.parents[stmt]
    anchor = gate if isinstance(gate, ast.If) else stmt
    return [(module, Insert(anchor, f"{ALIKE}()", "after")), (module, Define(ALIKE))]
