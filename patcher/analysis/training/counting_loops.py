"""Loops that count, as those over epochs do, and the names that they count in."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import (
    Function,
    argument_values,
    bound_names,
    everywhere,
    is_inside,
    is_within,
    parameters,
    within,
)
from ..language.call_graph import CallGraph
from .train_loops import calls_around

LISTS = ("list", "tuple", "sorted", "reversed")
MAX_RETURNS = 4  # functions through which what a loop goes over is followed
CountingLoop = tuple[ast.For | ast.While, str]  # and the name it counts in


def counting_loop(module: Module, node: ast.AST) -> CountingLoop | None:
    """The innermost loop around ``node`` in its function that counts, and the name it counts in."""
    return next(counting_loops(module, node), None)


def endless_loop(module: Module, node: ast.AST) -> CountingLoop | None:
    """The innermost ``while`` around ``node`` in its function, which counts nothing."""
    for up in module.ancestors(node):
        if isinstance(up, Function):
            return None
        if isinstance(up, ast.While):
            return up, ""
    return None


def counting_loops(module: Module, node: ast.AST) -> Iterator[CountingLoop]:
    """The loops around ``node`` in its function that count, the innermost first.

    One that makes a loader for each of several files stands in one that counts epochs.
    """
    for up in module.ancestors(node):
        if isinstance(up, Function):
            return
        if isinstance(up, ast.While) and (number := counted_up(module, up)):
            yield up, number
        if not isinstance(up, ast.For) or not is_counting(module, up.iter):
            continue
        target = up.target.elts[0] if isinstance(up.target, ast.Tuple) else up.target
        if isinstance(target, ast.Name | ast.Attribute):  # for self.epoch in range(epochs)
            yield up, module.text(target)


def counted_up(module: Module, loop: ast.While) -> str:
    """The name in ``while epoch < epochs:`` to which each turn or step adds; or empty.

    In ``while True:`` it is the first one to which each turn adds.
    """
    tested = {name.id for name in everywhere(loop.test, ast.Name)}
    if "len" in tested:
        return ""  # while i < len(loader): the batches of one epoch
    if isinstance(loop.test, ast.Constant):
        tested = {
            stmt.target.id
            for stmt in loop.body
            if isinstance(stmt, ast.AugAssign) and isinstance(stmt.target, ast.Name)
        }
    for add in within(loop.body, ast.AugAssign):
        if (
            isinstance(add.target, ast.Name)
            and add.target.id in tested
            and isinstance(add.op, ast.Add)
            and isinstance(add.value, ast.Constant)
            and [*stores_within(module, add.target, loop)] == [add.target]
            and not any(
                isinstance(up, ast.If) and is_inside(up, loop) for up in module.ancestors(add)
            )
        ):
            return add.target.id
    return ""


def stores_within(module: Module, name: ast.Name, loop: ast.While) -> Iterator[ast.Name]:
    """Where a loop binds a name."""
    stores = module.stores.get((module.function(name), name.id), ())
    return (store for store in stores if is_within(store, loop.body))


def is_counting(module: Module, source: ast.expr | None, depth: int = 0) -> bool:
    """``range(n)`` or ``trange(n)``, also inside ``tqdm`` or ``list`` or behind a name.

    And what a method without arguments returns, ``for epoch in self.epochs():``.
    """
    for name, call in calls_around(module, source):
        if name in ("range", "trange", "count"):
            return True
        if name in LISTS and call.args and is_counting(module, call.args[0], depth + 1):
            return True
        if depth == MAX_RETURNS or module.graph is None or argument_values(call):
            continue
        for where, function in module.graph.callees(module, call):
            for result in within(function.body, ast.Return):
                if is_counting(where, result.value, depth + 1):
                    return True
    return False


def rounds_around(
    graph: CallGraph, module: Module, node: ast.AST, inside: int = 0, depth: int = 0
) -> ast.For | None:
    """The loop that counts rounds, in each of which a loop inside it comes to a place again.

    ``for round in range(9): for client in clients: Client(client).train()``, also by calls.
    """
    for up in module.ancestors(node):
        if isinstance(up, Function):
            break
        if isinstance(up, ast.For):
            if inside and is_counting(module, up.iter):
                return up
            inside += 1
    function = module.function(node)
    if function is None or depth == MAX_RETURNS:
        return None
    rounds = (
        rounds_around(graph, where, call, inside, depth + 1)
        for where, call in graph.callers(function)
    )
    return next((each for each in rounds if each is not None), None)


def serves_outer_loop(module: Module, epochs: ast.stmt, name: str) -> bool:
    """Whether a loop that counts passes over a loader begins again in another one that counts.

    ``for epoch in range(90): for turn in range(3):``, whose own numbers come again.
    """
    around = counting_loop(module, epochs)
    return around is not None and name.partition(".")[0] not in bound_names(around[0])


def begins_again(graph: CallGraph, module: Module, counted: CountingLoop, name: str) -> bool:
    """Whether a function counts passes over a loader that it gets, and a loop calls it.

    ``def train(loader): n = 0; while n < 99: for x in loader: n += 1``, in each epoch anew.
    """
    epochs, number = counted
    function = module.function(epochs)
    root = name.partition(".")[0]
    if function is None or root not in parameters(function) or number in parameters(function):
        return False
    if isinstance(epochs, ast.For) and len(getattr(epochs.iter, "args", ())) > 1:
        return False  # from a number of the caller's on
    return any(counting_loop(where, call) is not None for where, call in graph.callers(function))
