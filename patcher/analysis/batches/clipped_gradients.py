"""Gradients that each rank clips by its own norm, ahead of the average over ranks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.branches import exclusive
from ...source.module import Module
from ...source.tree import FUNCTIONS, precedes, within
from ..models.wrapping import AVERAGE, loops_that_step, reduces_gradients
from ..training.program import Program
from ..training.train_loops import CLIPPING, is_backward

LOOPS = (ast.For, ast.While, *FUNCTIONS)
REDUCING = ("all_reduce", AVERAGE)


def clipped_before_average(program: Program) -> Iterator[tuple[Module, ast.Call, ast.Call]]:
    """The calls that clip gradients in a step, each with the one behind it that averages them."""
    if not program.calls_to(*CLIPPING) or not program.calls_to(*REDUCING):
        return
    seen: set[ast.Call] = set()
    for loop in loops_that_step(program):
        bodies = [(loop.module, loop.steps.body)]
        bodies += [
            (where, function.body)
            for where, function in program.functions_below(loop.module, *loop.steps.body)
        ]
        for module, body in bodies:
            calls = within(body, ast.Call)
            averages = [each for each in calls if averages_gradients(program, module, each)]
            backwards = [each for each in calls if is_backward(each)]
            for clip in calls if averages else ():
                if module.last_name(clip.func) not in CLIPPING or clip in seen:
                    continue
                behind = next((each for each in averages if follows(module, clip, each)), None)
                if behind is not None and not any(
                    precedes(clip, back) and precedes(back, behind) for back in backwards
                ):
                    seen.add(clip)
                    yield module, clip, behind


def follows(module: Module, clip: ast.Call, average: ast.Call) -> bool:
    """Whether an average comes behind a clip, and both in one round of the loops around them."""
    around = [up for up in module.ancestors(clip) if isinstance(up, LOOPS)]
    ups = module.ancestors(average)
    is_behind = precedes(clip, average) and not exclusive(clip, average)
    return is_behind and all(up in ups for up in around)


def averages_gradients(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether a call reduces gradients over the ranks, itself or in what it calls."""
    last = module.last_name(call.func)
    if last == AVERAGE:
        return True
    if last == "all_reduce":
        return reduces_gradients(program, module, call)
    return any(
        where.last_name(inner.func) == "all_reduce" and reduces_gradients(program, where, inner)
        for where, function in program.functions_below(module, call)
        for inner in within(function.body, ast.Call)
    )
