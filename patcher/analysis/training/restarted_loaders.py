"""Loaders that steps begin anew themselves, by ``iter(loader)``."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import is_inside, is_within, within
from .loaders import trace_loader
from .program import Program
from .train_loops import TrainLoop


def begun_anew(program: Program, loop: TrainLoop) -> tuple[list[ast.Call], list[ast.Call]]:
    """Calls ``iter(loader)`` above the steps, and those that steps or a test in the epochs come to.

    None of a loader that the loop itself goes over, once in each epoch. Where there are the second,
    the first need a number as well: each epoch would begin with the last one's order.
    """
    module, loader = loop.module, loop.loader
    if loader is None or not loader.distributed_samplers:
        return [], []
    own = (
        trace_loader(program, module, loop.steps.iter) if isinstance(loop.steps, ast.For) else None
    )
    if own is not None and own.is_same(loader):
        return [], []
    around = loop.epochs or loop.steps
    above: list[ast.Call] = []
    again: list[ast.Call] = []
    for call in within(loop.scope, ast.Call):
        source = begun_by(module, call)
        found = None if source is None else trace_loader(program, module, source)
        if found is None or not found.is_same(loader):
            continue
        tests = [up for up in module.ancestors(call) if isinstance(up, ast.If)]
        is_tested = any(is_inside(test, around) for test in tests)
        if is_within(call, loop.steps.body) or is_tested:
            again.append(call)
        elif is_repeated(module, call):
            above.append(call)
    return above, again


def begun_by(module: Module, call: ast.Call) -> ast.expr | None:
    """The loader of ``iter(loader)``, and of ``batches = enumerate(loader)``."""
    match call:
        case ast.Call(
            func=ast.Name(id="iter" | "enumerate" as name),
            args=[
                ast.Name()
                | ast.Attribute()
                | ast.Subscript(slice=ast.Constant() | ast.Name()) as source,
            ],
        ):
            is_kept = isinstance(module.parents[call], ast.Assign | ast.Tuple)
            return source if name == "iter" or is_kept else None
    return None


def is_repeated(module: Module, node: ast.AST) -> bool:
    """Whether a loop of its function is around a place, or its function may be called again."""
    return module.function(node) is not None or any(
        isinstance(up, ast.For | ast.While) for up in module.ancestors(node)
    )
