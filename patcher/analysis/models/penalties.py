"""Backward passes of a penalty on gradients alone, for which DistributedDataParallel waits in vain.

``autograd.grad(net(x).sum(), x, create_graph=True)`` and a backward of what is made of it reach all
parameters but those whose gradient depends on no input, such as the last layer's bias. The wrapper
expects a gradient of each that the forward pass used, and stops at the next one.
"""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import keyword, precedes, within
from ..training.program import Program
from ..training.train_loops import is_backward


def lone_penalty(program: Program) -> tuple[Module, ast.Call] | None:
    """A penalty on gradients in a training step, with a backward pass that may be its own.

    One in the step before it goes back through the rest of the loss.
    """
    for loop in program.train_loops:
        backwards = [call for call in loop.backwards if is_backward(call)]
        for call in within(loop.steps.body, ast.Call):
            graph = keyword(call, "create_graph")
            if (
                loop.module.last_name(call.func) == "grad"
                and graph is not None
                and not (isinstance(graph.value, ast.Constant) and graph.value.value is False)
                and any(precedes(each, call) for each in backwards)
                and any(precedes(call, each) for each in backwards)
            ):
                return loop.module, call
    return None
