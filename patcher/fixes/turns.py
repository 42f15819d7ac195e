"""Edits by which ranks take turns with the batches that a script makes without a DataLoader."""

from __future__ import annotations

import ast

from ..analysis.batches.batch_counts import horizons_of_all, refuse_other_plans, sums_of_all
from ..analysis.batches.batch_origins import refuse_order_of_sets
from ..analysis.batches.batch_sources import batch_source
from ..analysis.batches.batch_taint import NotDealtError
from ..analysis.batches.random_draws import ALIKE, draws_of, is_seeded
from ..analysis.batches.rates_by_batch import refuse_rates_by_batch
from ..analysis.batches.summed_losses import refuse_summed_losses
from ..analysis.language.name_flow import spread
from ..analysis.ranks.before_group import runs_before_group
from ..analysis.ranks.dealing import TURNS
from ..analysis.training.program import Program
from ..analysis.training.train_loops import TrainLoop
from ..editing.edits import Define, Edit, Insert, Rewrite
from ..source.branches import exclusive
from ..source.module import Module
from ..source.tree import everywhere, is_inside, parameters, precedes, within
from .process_group import NUMBER_OF_RANKS


def edits_to_take_turns(program: Program, loop: TrainLoop) -> list[tuple[Module, Edit]]:
    """Edits that give each rank every n-th batch of a loop. Raises NotDealtError."""
    module, steps = loop.module, loop.steps
    source = batch_source(program, loop)
    assert isinstance(steps, ast.For)
    refuse_order_of_sets(program)
    refuse_evaluations(loop)
    taint = spread(steps.body, {*source.numbers, *source.items})
    horizons = horizons_of_all(program, loop, source.whole)
    refuse_other_plans(program, loop, taint)
    refuse_rates_by_batch(program, loop)
    refuse_summed_losses(program, loop, even_if_divided=True)
    sums = sums_of_all(program, loop, taint, source)
    draws = draws_of(program, module, steps)
    text = module.text(source.whole)
    edits: list[tuple[Module, Edit]] = [
        (module, Rewrite(source.whole, f"{TURNS}({text})")),
        (module, Define(TURNS)),
    ]
    for each in horizons:
        edits.append((module, Rewrite(each, f"-(-{module.text(each)} // ({NUMBER_OF_RANKS}))")))
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


def refuse_evaluations(loop: TrainLoop) -> None:
    """Refuse a loop that evaluates as well, on all batches: what its caller passes says which."""
    module, function = loop.module, loop.module.function(loop.steps)
    if function is None:
        return
    modes = [
        call.func
        for call in within(function.body, ast.Call)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in ("train", "eval")
        and precedes(call, loop.steps)
    ]
    either = [
        mode
        for mode in modes
        for other in modes
        if mode.attr != other.attr
        and module.text(mode.value) == module.text(other.value)
        and exclusive(mode, other)
    ]
    passed = set(parameters(function))
    flags = [
        up
        for backward in loop.backwards
        for up in module.ancestors(backward)
        if isinstance(up, ast.If) and is_inside(up, loop.steps) and up is not loop.step_test
        if any(name.id in passed for name in everywhere(up.test, ast.Name))
        if not any(isinstance(each.op, ast.Mod) for each in everywhere(up.test, ast.BinOp))
        if not all(
            any(is_inside(each, stmt) for each in loop.backwards for stmt in branch)
            for branch in (up.body, up.orelse)
        )
    ]
    places: list[ast.stmt | ast.expr] = [*flags, *either]
    if places:
        raise NotDealtError(f"as line {places[0].lineno} says, the same loop evaluates on all")


def start_alike(module: Module, group: ast.Call) -> list[tuple[Module, Edit]]:
    """Edits that let all ranks start with the random numbers of rank 0."""
    stmt = module.statement(group)
    gate = module.parents[stmt]
    anchor = gate if isinstance(gate, ast.If) else stmt
    return [(module, Insert(anchor, f"{ALIKE}()", "after")), (module, Define(ALIKE))]
