"""Tests of the number of optimizer steps that each micro-batch comes to."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..analysis.training.train_loops import TrainLoop
from ..source.tree import bound_names, everywhere, is_inside, mentions, names_within, within


def gates_of_each_batch(loop: TrainLoop, last: str) -> Iterator[ast.expr]:
    """The test of ``if global_step % save_steps == 0:`` beside the step that moves the counter.

    Not where the test asks for ``last``, or for anything else that the step binds, or where what is
    done on the other micro-batches stands in an else. Of ``step + 1 == n or global_step % m == 0``
    the second part only: the first holds once, and maybe on no last micro-batch.
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
            yield from parts_that_count(loop, gate.test)


def parts_that_count(loop: TrainLoop, test: ast.expr) -> list[ast.expr]:
    """The whole test; the parts with ``counter % n`` where another asks for a batch's number."""
    if not (isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or)):
        return [test]
    numbers = bound_names(loop.steps.target) if isinstance(loop.steps, ast.For) else set()
    parts = [part for part in test.values if counts_steps(part, loop.counters)]
    others = [part for part in test.values if part not in parts]
    return parts if any(names_within(part, numbers) for part in others) else [test]


def counts_steps(test: ast.expr, counters: set[str]) -> bool:
    """Whether a test takes ``counter % n``."""
    return any(
        isinstance(each.op, ast.Mod)
        and isinstance(each.left, ast.Name)
        and each.left.id in counters
        for each in everywhere(test, ast.BinOp)
    )
