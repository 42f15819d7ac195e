"""Methods that nothing can run: their names are written nowhere, and no base calls them."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import Function
from ..language.call_graph import CallGraph
from ..language.looked_up_methods import method_lookups, texts_of
from ..language.names import answered_once


def is_unused_method(graph: CallGraph, module: Module, function: Function | None) -> bool:
    """Whether a function is a method of a class without foreign bases, whose name nobody writes.

    As one that looks for a rate, of a class whose other methods train.
    """
    owner = None if function is None else module.parents[function]
    if function is None or not isinstance(owner, ast.ClassDef) or function.name.startswith("__"):
        return False
    is_plain = not function.decorator_list and not owner.decorator_list
    bases = [base for base in owner.bases if module.text(base) != "object"]
    return (
        is_plain
        and not bases
        and not owner.keywords
        and not any(each.spells(function.name) for each in graph.modules)
        and function.name not in texts_of(graph)
        and not looks_methods_up(graph)
    )


@answered_once
def looks_methods_up(graph: CallGraph) -> bool:
    """Whether a program asks an object for an attribute whose name it makes as it runs."""
    return bool(method_lookups(graph)) or any(module.spells("Fire") for module in graph.modules)
