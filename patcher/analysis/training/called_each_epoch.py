"""A training loop in a function that an epoch loop calls, as that one's function sees it."""

from __future__ import annotations

import ast

from ....record import replace
from ...source.module import Module
from ...source.tree import Function, parameters
from ..language.passed_arguments import argument_for_parameter
from .program import Program
from .scheduler_steps import hangs_on_step, scheduler_steps
from .train_loops import TrainLoop


def loop_of_caller(program: Program, loop: TrainLoop) -> TrainLoop | None:
    """The loop with the epochs around the one call of its function, and their accumulation.

    None unless the loop steps a schedule, once per optimizer step: the caller may make that.
    """
    function = loop.module.function(loop.steps)
    callers = [] if function is None else program.callers(function)
    if function is None or len(callers) != 1 or loop.step_test is None:
        return None
    ((module, call),) = callers
    stepped = scheduler_steps(loop, loop.module, call)
    if not stepped or not all(hangs_on_step(loop, step) for step in stepped):
        return None
    epochs = next((up for up in module.ancestors(call) if isinstance(up, ast.For)), None)
    accumulation = passed_accumulation(loop, function, module, call)
    if epochs is None or accumulation is None or module.function(call) is function:
        return None
    seen = replace(loop, module=module, steps=epochs, step_test=None, accumulation=accumulation)
    return seen if seen.drops_rest is loop.drops_rest else None


def passed_accumulation(
    loop: TrainLoop, function: Function, module: Module, call: ast.Call
) -> ast.expr | None:
    """What the caller calls the accumulation of a loop; None where it has no name for it."""
    own = loop.accumulation
    root = own
    while isinstance(root, ast.Attribute | ast.Subscript):
        root = root.value
    if not isinstance(root, ast.Name):
        return None
    if root.id not in parameters(function):
        return own if module is loop.module and own is not None else None
    passed = argument_for_parameter(module, function, call, root.id)
    if root is own:
        return passed if isinstance(passed, ast.Name | ast.Attribute | ast.Subscript) else None
    if not isinstance(passed, ast.Name) or passed.id != root.id or own is None:
        return None  # the caller has another name for the options
    if module is loop.module:
        return own
    text = loop.module.text(own)
    same = (each for each in module.attributes(text.rpartition(".")[2]))
    return next((each for each in same if module.text(each) == text), None)
