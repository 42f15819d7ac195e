"""Steps that a rank leaves out by a number of its own: ``if random.random() < 0.1: continue``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import argument_values, everywhere, is_inside
from ..ranks.divergence_walk import Exit
from ..ranks.rank_divergence import conditional_exits, conditional_steps, is_left_out
from ..training.program import Program
from ..training.train_loops import TrainLoop
from .drawn_examples import tells_ranks_apart
from .global_seeds import has_seed, seeds
from .own_seeds import own_seeds
from .random_draws import ALIKE, SEED_FUNCTIONS, library

NAMES = ("random", "rand", "uniform", "randint", "randrange", "choice", "binomial", "bernoulli")
LIBRARIES = ("random.", "numpy.random.", "np.random.", "torch.")
HELPERS = ("what_rank_0_has", "on_any_rank", "mean_of_ranks", "broadcast", "all_reduce")


def drawn_decisions(
    program: Program, loop: TrainLoop
) -> Iterator[tuple[Exit | ast.Call, ast.If, ast.Call]]:
    """What ranks leave out of a training by a draw, with the test and what it draws."""
    module = loop.module
    if not module.calls_to(*NAMES):
        return
    left: list[tuple[Exit | ast.Call, ast.If]] = [
        (leaving, up)
        for leaving in conditional_exits(loop)
        for up in module.ancestors(leaving)
        if isinstance(up, ast.If) and is_inside(up, loop.epochs or loop.steps)
    ]
    left += [
        (call, up)
        for call in conditional_steps(loop)
        for up in module.ancestors(call)
        if isinstance(up, ast.If) and is_left_out(loop, call, up)
    ]
    told: set[ast.If] = set()
    for leaving, test in left:
        draw = next(draws_in(module, loop, test.test), None)
        if draw is None or test in told or draw_alike(program, module, draw):
            continue
        told.add(test)
        yield leaving, test, draw


def draws_in(module: Module, loop: TrainLoop, test: ast.expr) -> Iterator[ast.Call]:
    """The draws in a test, and in what the training binds the names of it to."""
    values = [test]
    for name in everywhere(test, ast.Name):
        bound = module.definition(name, name)
        if bound is not None and is_inside(bound, loop.epochs or loop.steps):
            values.append(bound)
    for value in values:
        calls = everywhere(value, ast.Call)
        if any(module.last_name(call.func) in HELPERS for call in calls):
            return
        yield from (call for call in calls if is_draw_of_number(module, call))


def is_draw_of_number(module: Module, call: ast.Call) -> bool:
    """``random.random()``, ``np.random.rand()`` and ``torch.rand(1)``."""
    return module.last_name(call.func) in NAMES and module.dotted(call.func).startswith(LIBRARIES)


def draw_alike(program: Program, module: Module, draw: ast.Call) -> bool:
    """Whether all ranks surely draw the same numbers from a library."""
    drawing = library(module, draw)
    if any(program.is_live(where, call) for where, call in program.calls_to(ALIKE)):
        return True
    if not has_seed(program, drawing):
        return False
    own = [call for _, call in own_seeds(program)]
    return not any(
        seeds(program, where, call, drawing)
        and (
            call in own
            or any(tells_ranks_apart(program, where, value) for value in argument_values(call))
        )
        for where, call in program.calls_to(*SEED_FUNCTIONS)
    )
