"""What rises in a step by the number of examples that a rank has trained on."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.tree import bound_names, everywhere, within
from ..training.program import Program
from ..training.train_loops import TrainLoop
from .batch_sizes import is_size
from .batches_of_all import holds_size
from .steps_apart import names_of_batch


def own_counts(program: Program, loop: TrainLoop) -> Iterator[tuple[ast.BinOp, str]]:
    """``seen / total`` of ``seen += len(x)``, in what a step binds, with the name of the count."""
    of_batch = names_of_batch(loop)
    counts = {
        add.target.id
        for add in within(loop.steps.body, ast.AugAssign)
        if isinstance(add.target, ast.Name)
        and isinstance(add.op, ast.Add)
        and counts_examples(program, loop, add.value, of_batch)
    }
    for stmt in within(loop.steps.body, ast.Assign) if counts else ():
        for node in everywhere(stmt.value, ast.BinOp):
            names = {name.id for name in everywhere(node.left, ast.Name)} & counts
            if isinstance(node.op, ast.Div) and names and not counts & bound_names(stmt):
                yield node, min(names)


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
