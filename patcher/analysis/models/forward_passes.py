"""Whether training steps forward a model more than once ahead of a backward pass."""

from __future__ import annotations

import ast
import itertools
from collections import defaultdict

from ...source.branches import exclusive
from ...source.module import Module
from ...source.tree import Function, parameters
from ..training.program import Program, runs_in_training_step
from .trained_models import all_names, called_model, last_part
from .wrapper_attributes import is_gradless

Places = dict[tuple[Module, Function | None], list[ast.Call]]


def forwards_twice(program: Program, model: str) -> bool:
    """Whether a function of a training step has two calls of a model, with no backward between.

    ``model`` is its name where it is wrapped. A first call without gradients does not count.
    """
    calls: Places = defaultdict(list)
    name = last_part(model)
    for module in program.modules:
        for call in module.nodes(ast.Call):
            if isinstance(call.func, ast.Name | ast.Attribute):
                called = called_model(call.func)
                is_named = last_part(module.text(called)) == name
                if is_named or is_called(program, module, called, name):
                    calls[module, module.function(call)].append(call)
    return any(
        runs_in_training_step(program, module, function) and has_two_forwards(module, several)
        for (module, function), several in calls.items()
        if len(several) > 1
    )


def is_called(program: Program, module: Module, called: ast.expr, name: str) -> bool:
    """Whether a parameter of a function is the model of this name where it is called."""
    function = module.function(called)
    if function is None or not isinstance(called, ast.Name):
        return False
    if called.id not in parameters(function):
        return False
    return any(last_part(each) == name for each in all_names(program, module, called))


def has_two_forwards(module: Module, calls: list[ast.Call]) -> bool:
    """Whether two of a function's calls may come one after the other, ahead of a backward pass."""
    backwards = module.calls_to("backward")
    return any(
        not is_gradless(module, first)
        and not exclusive(first, second)
        and not any(first.lineno <= each.lineno < second.lineno for each in backwards)
        for first, second in itertools.pairwise(calls)
    )
