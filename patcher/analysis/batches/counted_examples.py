"""What rises in a step by the number of examples that a rank has trained on."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.tree import bound_names, everywhere, within
from ..training.program import Program
from ..training.train_loops import TrainLoop, is_step
from .batch_sizes import is_size
from .batches_of_all import holds_size
from .steps_apart import names_of_batch

LIMITS = ast.Gt | ast.GtE | ast.Lt | ast.LtE | ast.Eq


def own_counts(program: Program, loop: TrainLoop) -> Iterator[tuple[ast.BinOp, str]]:
    """``seen / total`` of ``seen += len(x)``, in what a step binds, with the name of the count."""
    counts = counts_of(program, loop)
    for stmt in within(loop.steps.body, ast.Assign) if counts else ():
        for node in everywhere(stmt.value, ast.BinOp):
            names = {name.id for name in everywhere(node.left, ast.Name)} & counts
            if isinstance(node.op, ast.Div) and names and not counts & bound_names(stmt):
                yield node, min(names)


def limits_of_counts(program: Program, loop: TrainLoop) -> Iterator[tuple[ast.If, str]]:
    """``if seen >= limit:`` in a step that such a count steps or leaves by, with its name."""
    tests = within(loop.steps.body, ast.If)
    counts = counts_of(program, loop) if tests else set[str]()
    for test in tests if counts else ():
        names = {name.id for name in everywhere(test.test, ast.Name)} & counts
        compares = everywhere(test.test, ast.Compare)
        is_limit = any(isinstance(op, LIMITS) for each in compares for op in each.ops)
        ends = [*within(test.body, ast.Break), *within(test.body, ast.Return)]
        steps = (is_step(call) for call in within(test.body, ast.Call))
        if names and is_limit and (ends or any(steps)):
            yield test, min(names)


def counts_of(program: Program, loop: TrainLoop) -> set[str]:
    """The names by which a step counts examples."""
    of_batch = names_of_batch(loop)
    return {
        add.target.id
        for add in within(loop.steps.body, ast.AugAssign)
        if isinstance(add.target, ast.Name)
        and isinstance(add.op, ast.Add)
        and counts_examples(program, loop, add.value, of_batch)
    }


def counts_examples(program: Program, loop: TrainLoop, node: ast.expr, of_batch: set[str]) -> bool:
    """``len(x)``, ``x.size(0)`` and ``x.shape[0]`` of a batch, or the loader's own size."""
    if is_size(node, of_batch):
        return True
    loader = loop.loader
    return (
        loader is not None
        and loader.batch_size is not None
        and holds_size(program, loader, loop.module, node)
    )
