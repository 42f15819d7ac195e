"""Models that the function of a training loop makes and trains, and that go through no wrapper."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import Function, mentions, within, without_calls_of
from ..language.objects import class_of
from ..training.frameworks import OPTIMIZERS
from ..training.program import Program
from ..training.train_loops import TrainLoop
from .wrapped_parts import is_model

MOVES = ("to", "cuda", "cpu", "float", "half", "double", "train")
WRAPPER = "DistributedDataParallel"
MAX_CALLERS = 3


def model_made_bare(program: Program, loop: TrainLoop) -> ast.Name | None:
    """The first model that a step calls, as ``model = Net()`` above it binds the name alone.

    By its name it may seem to be a model that another function wraps.
    """
    module, function = loop.module, loop.module.function(loop.steps)
    if function is None or mentions(function, WRAPPER) or not is_always_run(program, function):
        return None
    optimizers = [
        each
        for each in within(function.body, ast.Call)
        if module.last_name(each.func) in OPTIMIZERS
    ]
    for call in within(loop.steps.body, ast.Call):
        if not isinstance(call.func, ast.Name):
            continue
        name = call.func
        is_stepped = any(mentions(each, name.id) for each in optimizers)
        if is_stepped and is_made_here(program, module, name):
            return name
    return None


def is_made_here(program: Program, module: Module, name: ast.Name) -> bool:
    """Whether a name is bound once in its function, to a new model of the program."""
    stores = module.stores.get((module.function(name), name.id), ())
    values = module.alternatives(name, name)
    if len(stores) != 1 or len(values) != 1:
        return False
    value = without_calls_of(values[0], MOVES)
    made = class_of(program, module, value) if isinstance(value, ast.Call) else None
    return made is not None and is_model(program, made) and not mentions(made[1], WRAPPER)


def is_always_run(program: Program, function: Function, depth: int = 0) -> bool:
    """Whether no test stands around the calls of a function: it may be that of a lone process."""
    calls = program.callers(function)
    if depth > MAX_CALLERS or not calls:
        return False
    for module, call in calls:
        above = module.ancestors(call)
        tests = [up for up in above if isinstance(up, ast.If | ast.IfExp | ast.Try)]
        if any(not mentions(up, "__name__") for up in tests):
            return False
        around = module.function(call)
        leaves = () if around is None else within(around.body, ast.Return)
        if any(leaving.lineno < call.lineno for leaving in leaves):
            return False
        if around is not None and not is_always_run(program, around, depth + 1):
            return False
    return True
