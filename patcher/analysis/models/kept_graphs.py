"""Steps that go back more than once through one forward pass: ``backward(retain_graph=True)``.

DistributedDataParallel averages what the first backward pass behind its forward pass computes. What
a second one adds is each rank's own, and models drift apart; nothing warns.
"""

from __future__ import annotations

import ast

from ...source.branches import exclusive
from ...source.module import Module
from ...source.tree import keyword, precedes
from ..training.program import Program
from ..training.train_loops import TrainLoop, backward_calls, loop_around


def kept_graph(program: Program) -> tuple[Module, ast.Call] | None:
    """A backward pass of a training step that leaves its graph to another one in that step."""
    for loop in program.train_loops:
        calls = backward_calls(program, loop)
        for module, call in calls:
            if keeps_graph(call) and (
                goes_back_again(loop, module, call)
                or any(may_follow(module, call, *other) for other in calls)
            ):
                return module, call
    return None


def keeps_graph(call: ast.Call) -> bool:
    """Whether a backward pass is told to keep its graph, or may be."""
    word = keyword(call, "retain_graph")
    return word is not None and not (isinstance(word.value, ast.Constant) and not word.value.value)


def goes_back_again(loop: TrainLoop, module: Module, call: ast.Call) -> bool:
    """Whether a loop in the step comes back to a backward pass."""
    inner = loop_around(module, call)
    return inner is not None and inner is not loop.steps and module is loop.module


def may_follow(module: Module, call: ast.Call, where: Module, other: ast.Call) -> bool:
    """Whether one run of a step may come from one backward pass to another."""
    if other is call or (where is module and exclusive(call, other)):
        return False
    is_here = where is module and module.function(other) is module.function(call)
    return not is_here or precedes(call, other)
