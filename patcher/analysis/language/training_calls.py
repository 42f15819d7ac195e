"""Which calls of a function may come to a training step, and which only evaluate."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import Function, within
from .call_graph import CallGraph
from .literal_arguments import STEPS, CallPlace, Calls, is_possible
from .names import answered_once

GRADLESS = ("no_grad", "inference_mode")
MAX_DEPTH = 2  # functions between one and its steps
MANY = 8

Way = tuple[tuple[Module, Function, ast.Call], ...]  # calls of functions, and the step at last


def calls_that_train(
    graph: CallGraph, module: Module, function: Function, calls: list[CallPlace]
) -> list[CallPlace]:
    """Those of a function's calls that may come to its training steps, if it has any; else all.

    Many scripts have one function for an epoch of training and of validation, which takes a phase,
    or no optimizer.
    """
    ways = ways_to_steps(graph, module, function, 0)
    training = [place for place in calls if any(may_go(way, place) for way in ways)]
    return training or calls


@answered_once
def ways_to_steps(graph: CallGraph, module: Module, function: Function, depth: int) -> list[Way]:
    """The ways from a function to its steps, or to those of functions that it calls."""
    calls = within(function.body, ast.Call)
    own: list[Way] = [
        ((module, function, call),)
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr in STEPS
        if not graph.callees(module, call)  # such as the program's own self.step(batch, train)
    ]
    if own or depth == MAX_DEPTH:
        return own
    found: list[Way] = []
    for call in calls:
        for where, callee in graph.callees(module, call)[:1]:
            below = ways_to_steps(graph, where, callee, depth + 1)
            first = (module, function, call)
            found += [(first, *way) for way in below] if len(below) <= MANY else [(first,)]
    return found


def may_go(way: Way, place: CallPlace) -> bool:
    """Whether a call comes to the end of a way, by the literals that are passed on it."""
    if is_without_gradients(*place):
        return False
    places: Calls = (place,)
    for module, function, call in way:
        if not is_possible(module, function, call, places):
            return False
        places = ((module, call), *places)
    return True


def is_without_gradients(module: Module, call: ast.expr) -> bool:
    """Whether code stands under ``with torch.no_grad():``, or its function is decorated so."""
    function = module.function(call)
    makers = [] if function is None else [*function.decorator_list]
    for up in module.ancestors(call):
        if up is function:
            break
        if isinstance(up, ast.With):
            makers += [item.context_expr for item in up.items]
    makers = [each.func if isinstance(each, ast.Call) else each for each in makers]
    return any(module.last_name(each) in GRADLESS for each in makers)
