"""Loaders of a class of the program whose constructor calls that of torch's DataLoader.

``ImageLoader(root, batch_size)`` makes the data set itself, and hands it to ``super().__init__``,
which is the construction that counts then.
"""

from __future__ import annotations

import ast

from ....record import replace
from ...source.module import Module
from ...source.tree import Function, within
from ..language.call_graph import CallGraph
from ..language.objects import ClassOf, classes_above, method_of, named_definition
from .constructed_loaders import Loader, loader_from_call

MAX_CLASSES = 4  # between the class and torch's


def loader_of_own_class(graph: CallGraph, module: Module, call: ast.Call) -> Loader | None:
    """The loader that a call makes by the constructor of a class of the program."""
    found = named_definition(graph, module, call.func)
    if found is None or not isinstance(found[1], ast.ClassDef):
        return None
    made_by = [(module, call)]
    owner: ClassOf = found[0], found[1]
    for _ in range(MAX_CLASSES):
        constructor = method_of(graph, owner, "__init__")
        inner = None if constructor is None else _call_of_base(*constructor)
        if constructor is None or inner is None:
            return None
        home = constructor[0]
        own = home.enclosing_class(constructor[1])
        if own is None:
            return None
        above = classes_above(graph, (home, own))[1:]
        if not any(method_of(graph, each, "__init__") for each in above):
            kinds = [
                where.last_name(base)
                for where, each in [(home, own), *above]
                for base in each.bases
            ]
            if "DataLoader" not in kinds:
                return None
            loader = loader_from_call(home, inner)
            return replace(loader, name="", made_by=tuple(made_by))
        owner = above[0]
        made_by.insert(0, (home, inner))
    return None


def _call_of_base(module: Module, constructor: Function) -> ast.Call | None:
    """The one ``super().__init__(…)`` of a constructor."""
    calls = [
        call
        for call in within(constructor.body, ast.Call)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "__init__"
        and isinstance(call.func.value, ast.Call)
        and module.last_name(call.func.value.func) == "super"
    ]
    return calls[0] if len(calls) == 1 else None
