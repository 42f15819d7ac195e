"""Calls that make an optimizer whose class is chosen first: ``getattr(torch.optim, name)(…)``.

Or taken from a dictionary, by a test, or under another name: ``Optimizer = Adam if … else SGD``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ..language.call_graph import CallGraph
from .frameworks import OPTIMIZERS
from .possible_values import Place, values_of

PACKAGE = "torch.optim"
MAX_STEPS = 4  # names and parameters between a call and the class


def chosen_optimizers(graph: CallGraph) -> list[tuple[Module, ast.Call]]:
    """The calls of a class of torch's optimizers that is not called by its own name."""
    if not any(module.spells("optim") for module in graph.modules):
        return []
    return [
        (module, call)
        for module in graph.modules
        for call in module.nodes(ast.Call)
        if (call.args or call.keywords)
        and not is_optimizer_class(module, call.func)
        and is_one_of_classes(graph, module, call.func)
    ]


def is_optimizer_class(module: Module, node: ast.expr) -> bool:
    """Whether a name is that of an optimizer's class: ``optim.SGD``."""
    if not isinstance(node, ast.Name | ast.Attribute):
        return False
    package, _, name = module.dotted(node).rpartition(".")
    return name in OPTIMIZERS or (package == PACKAGE and name[:1].isupper())


def is_one_of_classes(graph: CallGraph, module: Module, node: ast.expr, steps: int = 0) -> bool:
    """Whether an expression is a class of an optimizer, whichever one is chosen."""
    if steps > MAX_STEPS:
        return False
    match node:
        case ast.Call(func=ast.Name(id="getattr"), args=[package, *_]):
            return module.dotted(package) == PACKAGE
        case ast.Call(func=ast.Name(id="partial") | ast.Attribute(attr="partial"), args=[made, *_]):
            choices = [(module, made)]
        case ast.Call(func=ast.Attribute(value=table, attr="get"), args=[_, *default]):
            choices = [*elements(graph, module, table), *((module, each) for each in default)]
        case ast.Subscript(value=table):
            choices = [*elements(graph, module, table)]
        case ast.IfExp(body=body, orelse=orelse):
            choices = [(module, body), (module, orelse)]
        case ast.Name() | ast.Attribute() if is_optimizer_class(module, node):
            return steps > 0
        case ast.Name():
            choices = [*values_of(graph, module, node)]
        case _:
            return False
    return bool(choices) and all(
        is_one_of_classes(graph, where, each, steps + 1) for where, each in choices
    )


def elements(graph: CallGraph, module: Module, table: ast.expr) -> Iterator[Place]:
    """What a dictionary has, also under a name; what is no dictionary is its own element."""
    shown = [*values_of(graph, module, table)] if isinstance(table, ast.Name) else [(module, table)]
    for where, each in shown:
        if isinstance(each, ast.Dict):
            yield from ((where, value) for value in each.values)
        else:
            yield where, each
