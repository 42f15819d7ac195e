"""Classes that a program only inherits from: no object is of such a class itself."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import is_annotation
from .looked_up_methods import texts_of
from .names import ModuleSet, answered_once

ASKING = ("super", "isinstance", "issubclass")


@answered_once
def is_only_inherited_from(graph: ModuleSet, definition: ast.ClassDef) -> bool:
    """Whether nothing in a program can make an object of a class but by a class below it.

    A class with a decorator, or whose name is a string of the program, may be in a registry.
    """
    name = definition.name
    if definition.decorator_list or name in texts_of(graph):
        return False
    return not any(
        has_other_name(module, name)
        or (module.spells(name) and any(is_of_use(module, u) for u in module.occurrences(name)))
        for module in graph.modules
    )


def has_other_name(module: Module, name: str) -> bool:
    """Whether a module imports a class under another name."""
    return any(
        dotted.endswith(f".{name}") and local != name for local, dotted in module.aliases.items()
    )


def is_of_use(module: Module, use: ast.expr) -> bool:
    """Whether a class is more here than a base, a type, or the owner of ``__init__``."""
    match module.parents[use]:
        case ast.ClassDef(bases=bases):
            return use not in bases
        case ast.Attribute(attr="__init__"):
            return False
        case ast.Call(func=ast.Name(id=called)) if called in ASKING:
            return False
    return not is_annotation(use)
