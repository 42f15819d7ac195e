"""What comprehensions collect of batches: ``[model(x) for x, _ in loader]``, beside training."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import everywhere
from ..training.evaluations import evaluating_functions

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def collections_of_batches(module: Module) -> Iterator[tuple[Comprehension, ast.comprehension]]:
    """Comprehensions of one loop that may go over batches, and keep none to train on.

    As they run without gradients, leave a part of each batch, ``[y for _, y in loader]``, or go
    into a sum: ``sum(len(batch) for batch in loader)``.
    """
    evaluating = set(evaluating_functions(module))
    made_of: list[Comprehension] = [*module.nodes(ast.ListComp), *module.nodes(ast.SetComp)]
    made_of += [*module.nodes(ast.DictComp), *module.nodes(ast.GeneratorExp)]
    for made in made_of:
        (part, *more) = made.generators
        if more or not isinstance(part.target, ast.Name | ast.Tuple):
            continue
        if isinstance(module.definition(part.iter, part.iter), Comprehension):
            continue  # which has collected it already
        is_sum = isinstance(made, ast.GeneratorExp)
        if is_sum or module.function(made) in evaluating or leaves_some(made, part):
            yield made, part


def leaves_some(made: ast.expr, part: ast.comprehension) -> bool:
    """Whether a comprehension takes a part of the tuple that each batch is."""
    if not isinstance(part.target, ast.Tuple):
        return False
    names = {each.id for each in part.target.elts if isinstance(each, ast.Name)}
    used = {
        each.id for each in everywhere(made, ast.Name) if isinstance(each.ctx, ast.Load)
    } & names
    return len(used) < len(part.target.elts)
