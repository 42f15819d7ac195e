"""What an expression may stand for, one step back: its assignments, arguments or results."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import Function, parameters, within
from ..language.call_graph import CallGraph
from ..language.passed_arguments import argument_for_parameter, keyword_of

Place = tuple[Module, ast.expr]


def values_of(graph: CallGraph, module: Module, node: ast.expr) -> Iterator[Place]:
    """What a name, an attribute or a call of an own function may be, each with its module."""
    if isinstance(node, ast.Call):
        for where, called in graph.callees(module, node):
            for result in within(called.body, ast.Return):
                if result.value is not None and where.function(result) is called:
                    yield where, result.value
    elif isinstance(node, ast.Attribute):
        for where in graph.modules:
            for value in where.attribute_values.get(node.attr, ()):
                yield where, value
    elif isinstance(node, ast.Name):
        function = module.function(node)
        if values := module.alternatives(node, node):
            yield from ((module, value) for value in values)
        elif function is not None and node.id in parameters(function):
            yield from passed_by_callers(graph, module, function, node.id)
        elif (found := graph.resolve(module, node)) and isinstance(found[1], ast.expr):
            yield found[0], found[1]
    elif (keyword := keyword_of(module, node)) is not None:
        yield from passed_by_callers(graph, module, *keyword)


def passed_by_callers(
    graph: CallGraph, module: Module, function: Function, name: str
) -> Iterator[Place]:
    """What calls of a function pass for a parameter of it, or by a keyword."""
    for where, call in graph.callers(function):
        passed = argument_for_parameter(module, function, call, name)
        if passed is not None:
            yield where, passed
