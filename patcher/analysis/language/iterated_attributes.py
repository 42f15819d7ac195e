"""Objects of the program's classes that go over one of their attributes.

``for batch in OnDevice(loader, device):`` goes over the loader, as its ``__iter__`` does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import everywhere, within
from .call_graph import CallGraph
from .objects import attribute_values, is_self, named_definition

ITERATES = {"__iter__", "__next__", "next"}  # a class with one of these is gone over
ITERATING = {"iter", "next", "enumerate", "tqdm", "zip"}  # calls that go over what they get

AttributeValue = tuple[str, Module, ast.expr]  # its name, and where it is bound to what


def iterated_attributes(graph: CallGraph, module: Module, call: ast.Call) -> list[AttributeValue]:
    """What ``OnDevice(…)`` binds to the attributes that its object goes over.

    Empty where ``call`` makes no object of a class of the program that can be gone over.
    """
    where, owner = named_definition(graph, module, call.func) or (module, None)
    if not isinstance(owner, ast.ClassDef):
        return []
    methods = [each for each in owner.body if isinstance(each, ast.FunctionDef)]
    if ITERATES.isdisjoint(each.name for each in methods):
        return []
    names = {
        source.attr
        for method in methods
        for source in iterated_in(where, method)
        if isinstance(source.value, ast.Name) and is_self(method, source.value.id)
    }
    return [
        (name, place, value)
        for name in sorted(names)
        for place, value in attribute_values(graph, (where, owner), name)
    ]


def iterated_in(module: Module, method: ast.FunctionDef) -> Iterator[ast.Attribute]:
    """The attributes that a method goes over."""
    sources: list[ast.expr] = [each.iter for each in within(method.body, ast.For)]
    sources += [each.iter for each in everywhere(method, ast.comprehension)]
    sources += [each.value for each in within(method.body, ast.YieldFrom)]
    for call in within(method.body, ast.Call):
        if module.last_name(call.func) in ITERATING:
            sources += call.args
    for source in sources:
        if isinstance(source, ast.Attribute):
            yield source
