"""What the functions of a program return to a call, and what a loop binds for its next round."""

from __future__ import annotations

import ast
from typing import TypeVar

from ...source.module import Module
from ...source.tree import is_inside, position, within
from ..language.call_graph import CallGraph
from ..language.literal_arguments import is_possible

Result = TypeVar("Result", ast.Return, ast.Yield)


def possible_results(
    graph: CallGraph, module: Module, call: ast.Call
) -> list[tuple[Module, ast.expr]]:
    """What the program's function may return to a call with its literal arguments."""
    results = returned_values(graph, module, call, ast.Return)
    possible = [
        (where, value)
        for where, value in results
        for function in [where.function(value)]
        if function is None or is_possible(where, function, value, ((module, call),))
    ]
    return possible or results


def returned_values(
    graph: CallGraph, module: Module, call: ast.Call, kind: type[Result]
) -> list[tuple[Module, ast.expr]]:
    """What the program's function returns, or yields, to a call; with that function's module."""
    is_named = isinstance(call.func, ast.Name | ast.Attribute)
    found = graph.callees(module, call)[:1] if is_named else []
    return [
        (where, each.value)
        for where, function in found
        for each in within(function.body, kind)
        if each.value is not None
    ]


def carried_stores(module: Module, name: ast.Name, early: list[ast.Name]) -> list[ast.Name]:
    """Bindings behind ``name`` that it has in the next pass of a loop around both.

    Such as ``loader = DataLoader(chosen)`` behind the epochs of a round; ``early`` are those ahead.
    """
    function = module.function(name)
    late = [n for n in module.stores[function, name.id] if position(n) > position(name)]
    found: list[ast.Name] = []
    for up in module.ancestors(name) if late else ():
        if up is function or any(is_inside(each, up) for each in early):
            break
        if isinstance(up, ast.For | ast.While):
            found = [
                store
                for store in late
                if is_inside(store, up)
                and isinstance(module.parents[store], ast.Assign | ast.AnnAssign)
            ]
    return found
