"""Copies of a trained model that are made ahead of its training: averages, teachers, targets."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import argument, everywhere, is_inside, mentions
from ..training.program import Program
from .trained_models import all_names, last_part, trained_models

COPIES = ("deepcopy", "AveragedModel", "ModelEma", "ModelEmaV2", "EMA", "ExponentialMovingAverage")


def copies_of_models(program: Program) -> Iterator[tuple[Module, ast.Call]]:
    """Calls that copy the weights of a trained model before any epoch."""
    calls = program.calls_to(*COPIES, "load_state_dict", "copy_")
    trained = {last_part(name) for name in trained_models(program)} if calls else set()
    epochs = [loop.epochs or loop.steps for loop in program.train_loops]
    for module, call in calls:
        if any(is_inside(call, each) for each in epochs) or not program.is_live(module, call):
            continue
        source, function = copied(module, call), module.function(call)
        if function is not None and not program.callers(function):
            continue  # nobody copies by it
        if source is not None and trained & {
            last_part(name) for name in all_names(program, module, source)
        }:
            yield module, call


def copied(module: Module, call: ast.Call) -> ast.expr | None:
    """The model whose weights a call copies, if it may be one."""
    last, source = module.last_name(call.func), argument(call, 0, "model")
    if last == "load_state_dict":
        is_state = isinstance(source, ast.Call) and module.last_name(source.func) == "state_dict"
        source = source.func if is_state and isinstance(source, ast.Call) else None
        return source.value if isinstance(source, ast.Attribute) else None
    if last == "copy_":
        return next(zipped_models(module, call), None)
    match source:
        case ast.Call(func=ast.Attribute(value=model, attr="state_dict")):
            return model if is_bound_once(module, call) else None
    return source


def is_bound_once(module: Module, call: ast.Call) -> bool:
    """``first = deepcopy(model.state_dict())``, and nothing later: not the best state so far."""
    match module.statement(call):
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return module.single_assignment(module.function(call), name) is value
    return False


def zipped_models(module: Module, call: ast.Call) -> Iterator[ast.expr]:
    """The models of ``for p, q in zip(model.parameters(), copy.parameters()):`` around a call."""
    for up in module.ancestors(call):
        if isinstance(up, ast.For) and mentions(up.iter, "zip"):
            for part in everywhere(up.iter, ast.Attribute):
                if part.attr.endswith("parameters"):
                    yield part.value
