"""Tests of the number of optimizer steps that each micro-batch comes to."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..analysis.train_loops import TrainLoop
from ..source.tree import bound_names, everywhere, is_inside, mentions, names_within, within


def gates_of_each_batch(loop: TrainLoop, last: str) -> Iterator[ast.If]:
    """``if global_step % save_steps == 0:`` beside the step that moves the counter.

    Not where the test asks for ``last``, or for anything else that the step binds, or where what is
    done on the other micro-batches stands in an else.
    """
    step = loop.step_test
    if step is None or not loop.counters:
        return
    bound = set().union(*map(bound_names, loop.step_block)) - loop.counters
    for gate in within(loop.steps.body, ast.If):
        above = {up for up in loop.module.ancestors(gate) if isinstance(up, ast.If)}
        tests = [gate.test, *(up.test for up in above if is_inside(up, loop.steps))]
        if (
            counts_steps(gate.test, loop.counters)
            and not gate.orelse
            and gate is not step
            and step not in above
            and not is_inside(step, gate)
            and not any(mentions(test, last) or names_within(test, bound) for test in tests)
        ):
            yield gate


def counts_steps(test: ast.expr, counters: set[str]) -> bool:
    """Whether a test takes ``counter % n``."""
    return any(
        isinstance(each.op, ast.Mod)
        and isinstance(each.left, ast.Name)
        and each.left.id in counters
        for each in everywhere(test, ast.BinOp)
    )
