"""Generators of the program that go over a loader again and again.

``def infinite(loader): while True: yield from loader``, as scripts that count steps have them.
Unlike itertools.cycle they keep no batch: each pass begins the loader anew, in another order.
"""

from __future__ import annotations

import ast

from ....record import record
from ...source.module import Module
from ...source.tree import Function, is_true, parameters, within
from ..language.call_graph import CallGraph
from ..language.passed_arguments import argument_for_parameter

COUNTS_ON = ("count", "repeat")


@record
class EndlessBatches:
    """A generator over a loader, which is its first argument."""

    module: Module
    function: Function
    loader: str  # the parameter
    passes: tuple[ast.stmt, ...]  # what begins a pass over it


def endless_batches(graph: CallGraph, module: Module, call: ast.Call) -> EndlessBatches | None:
    """The generator that a call makes, where it never comes to the end of its loader."""
    if not call.args or not isinstance(call.func, ast.Name | ast.Attribute):
        return None
    for where, function in graph.callees(module, call)[:1]:
        yields = [*within(function.body, ast.Yield)], [*within(function.body, ast.YieldFrom)]
        if not any(yields):
            return None
        for name in parameters(function):
            passes = passes_over(where, function, name)
            passed = argument_for_parameter(where, function, call, name)
            if passes and passed is call.args[0] and (function, name) not in where.stores:
                return EndlessBatches(where, function, name, passes)
    return None


def passes_over(module: Module, function: Function, name: str) -> tuple[ast.stmt, ...]:
    """The statements in endless loops of a function that begin a pass over what a name has."""
    endless: list[ast.For | ast.While] = [
        *(each for each in within(function.body, ast.While) if is_true(each.test)),
        *(each for each in within(function.body, ast.For) if has_no_end(module, each.iter)),
    ]
    return tuple(
        dict.fromkeys(
            stmt
            for loop in endless
            for stmt in (
                *(each for each in within(loop.body, ast.For) if is_over(module, each.iter, name)),
                *(
                    module.statement(each)
                    for each in within(loop.body, ast.YieldFrom)
                    if is_over(module, each.value, name)
                ),
                *(
                    module.statement(each)
                    for each in within(loop.body, ast.Call)
                    if module.last_name(each.func) == "iter" and is_over(module, each, name)
                ),
            )
        )
    )


def has_no_end(module: Module, source: ast.expr) -> bool:
    """Whether a loop goes over ``itertools.count()`` or its like."""
    return (
        isinstance(source, ast.Call)
        and module.last_name(source.func) in COUNTS_ON
        and module.dotted(source.func).startswith("itertools.")
    )


def is_over(module: Module, source: ast.expr, name: str) -> bool:
    """Whether a loop goes over what a name has, perhaps through ``enumerate`` or ``iter``."""
    while isinstance(source, ast.Call) and source.args:
        if module.last_name(source.func) not in ("enumerate", "iter", "tqdm"):
            return False
        source = source.args[0]
    return isinstance(source, ast.Name) and source.id == name
