"""A training loop as the function sees it that calls its function, and may make its schedule."""

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
    """The loop as the one call of its function sees it, with the accumulation's name there.

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
    accumulation = passed_accumulation(loop, function, module, call)
    if accumulation is None or module.function(call) is function:
        return None
    seen_from = module.statement(call)
    seen = replace(loop, module=module, step_test=None, accumulation=accumulation)
    return replace(seen, seen_from=seen_from)


def passed_accumulation(
    loop: TrainLoop, function: Function, module: Module, call: ast.Call
) -> ast.expr | None:
    """What the caller calls the accumulation of a loop; None where it has no name for it."""
    own = loop.accumulation
    root = own
    while isinstance(root, ast.Attribute | ast.Subscript):
        root = root.value
    if own is None or not isinstance(root, ast.Name):
        return None
    text = loop.module.text(own)
    if root.id == "self" and text.count(".") > 1:
        return named_so(module, text.removeprefix("self."))  # options that the object was given
    if root.id not in parameters(function):
        return own if module is loop.module else None
    passed = argument_for_parameter(module, function, call, root.id)
    if root is own:
        return passed if isinstance(passed, ast.Name | ast.Attribute | ast.Subscript) else None
    if not isinstance(passed, ast.Name) or passed.id != root.id:
        return None  # the caller has another name for the options
    return own if module is loop.module else named_so(module, text)


def named_so(module: Module, text: str) -> ast.expr | None:
    """An attribute of a module that is spelled so."""
    attributes = module.attributes(text.rpartition(".")[2])
    return next((each for each in attributes if module.text(each) == text), None)
