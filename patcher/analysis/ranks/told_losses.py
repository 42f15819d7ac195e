"""Functions and objects that are told a loss, and decide by it: ``keep_best(loss, model)``."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from ...source.tree import parameters
from ..language.passed_arguments import argument_for_parameter
from ..training.program import Program
from .divergence_walk import DivergenceWalk
from .rank_divergence import Matters, walk_of


def told_losses(
    program: Program, walk: DivergenceWalk, matters: Matters, agreed: Collection[str]
) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Calls that tell a function what a rank has seen, by which that comes to what matters.

    Each with the value that it is told. Only calls to which all ranks of a walk come alike.
    """
    for call, values in walk.told.items():
        for module, function in program.callees(walk.module, call):
            passed = {
                name: argument_for_parameter(module, function, call, name)
                for name in parameters(function)
            }
            own = {name for name, value in passed.items() if value in values}
            inner = walk_of(program, module, walk.loop, {*agreed}, set())
            inner.block(function.body, own, None)
            if any(matters(module, stmt) for stmt in inner.gates):
                yield call, values[0]
                break
