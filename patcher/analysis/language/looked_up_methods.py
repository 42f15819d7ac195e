"""Methods that a program gets by a name in a string: ``getattr(callback, event)(self)``."""

from __future__ import annotations

import ast

from ...source.module import Module
from .names import ModuleSet, answered_once


@answered_once
def texts_of(graph: ModuleSet) -> frozenset[str]:
    """The strings of a program."""
    return frozenset(
        node.value
        for module in graph.modules
        for node in module.nodes(ast.Constant)
        if isinstance(node.value, str)
    )


@answered_once
def method_lookups(graph: ModuleSet) -> list[tuple[Module, ast.Call]]:
    """The calls that ask an object, and no module, for an attribute by a computed name."""
    return [
        (module, call)
        for module in graph.modules
        for call in module.calls_to("getattr")
        if len(call.args) > 1
        and not isinstance(call.args[1], ast.Constant)
        and not (isinstance(first := call.args[0], ast.Name) and first.id in module.aliases)
    ]


def calls_what_it_finds(module: Module, lookup: ast.Call) -> bool:
    """Whether what a lookup finds is called at once, or gets a name and is called by it."""
    above = module.parents[lookup]
    if isinstance(above, ast.Call):
        return above.func is lookup
    target = above.targets[0] if isinstance(above, ast.Assign) else None
    return isinstance(target, ast.Name) and any(
        module.function(call) is module.function(lookup) for call in module.calls_to(target.id)
    )
