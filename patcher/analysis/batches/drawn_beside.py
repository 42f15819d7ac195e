"""Batches that are drawn beside the training for what their gradients are, as pruning does."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import Function, within
from ..models.wrapping import takes_steps
from ..training.program import Program
from ..training.train_loops import is_backward


def drawn_for_gradients(program: Program) -> Iterator[tuple[Module, ast.expr]]:
    """What functions draw batches from, ``next(iter(loader))``, that go back and take no step.

    Also those whose callers do so with what they return.
    """
    training = {
        loop.module.function(loop.steps) for loop in program.train_loops if takes_steps(loop)
    }
    for module in program.modules:
        drawing = {module.function(call) for call in module.calls_to("next")} - training
        for call in module.calls_to("iter") if drawing else ():
            function = module.function(call)
            if function is None or function not in drawing or len(call.args) != 1:
                continue
            callers = [(where, where.function(each)) for where, each in program.callers(function)]
            if program.is_live(module, call) and any(
                scope is not None and scope not in training and looks_back(where, scope)
                for where, scope in ((module, function), *callers)
            ):
                yield module, call.args[0]


def looks_back(module: Module, function: Function) -> bool:
    """Whether a function asks for gradients, ``autograd.grad(…)`` too, and steps by none."""
    calls = within(function.body, ast.Call)
    if any(module.last_name(call.func) == "step" for call in calls):
        return False
    return any(
        is_backward(call) or module.dotted(call.func).endswith("autograd.grad") for call in calls
    )
