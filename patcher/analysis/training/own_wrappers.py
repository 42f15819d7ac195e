"""Classes that a program derives from torch's DataParallel, and uses of it as a value."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ..language.names import ModuleSet, answered_once

ADDS_ATTRIBUTES = {"__getattr__"}  # also those of the module behind the wrapper


@answered_once
def plain_subclasses(program: ModuleSet) -> tuple[str, ...]:
    """The names of those that wrap, deal and gather as DataParallel does."""
    return tuple(node.name for _, node in subclasses(program) if methods(node) <= ADDS_ATTRIBUTES)


@answered_once
def other_subclasses(program: ModuleSet) -> tuple[str, ...]:
    """The names of those that deal batches, or gather outputs, in a way of their own."""
    return tuple(
        node.name for _, node in subclasses(program) if not methods(node) <= ADDS_ATTRIBUTES
    )


def subclasses(program: ModuleSet) -> Iterator[tuple[Module, ast.ClassDef]]:
    """Classes of the program that derive from torch's DataParallel, under another name."""
    for module in program.modules:
        for node in module.nodes(ast.ClassDef):
            if node.name != "DataParallel" and any(
                module.last_name(base) == "DataParallel"
                and module.dotted(base).partition(".")[0] in ("torch", "DataParallel")
                for base in node.bases
            ):
                yield module, node


def methods(node: ast.ClassDef) -> set[str]:
    """The names of the methods that a class has of its own."""
    return {stmt.name for stmt in node.body if isinstance(stmt, ast.FunctionDef)}


def uses_as_value(module: Module) -> Iterator[ast.expr]:
    """Uses of DataParallel as a value: ``wrap = nn.DataParallel``, ``map(DataParallel, nets)``."""
    names = [name for name, target in module.aliases.items() if target.endswith(".DataParallel")]
    for use in module.occurrences("DataParallel", *names):
        if module.last_name(use) == "DataParallel" and not is_called_or_asked_for(module, use):
            yield use


def is_called_or_asked_for(module: Module, use: ast.expr) -> bool:
    """Whether a use of a class calls it, derives from it, or asks whether an object is one."""
    parent = module.parents[use]
    if isinstance(parent, ast.Call) and parent.func is use:
        return True
    if isinstance(module.statement(use), ast.ClassDef | ast.FunctionDef | ast.AnnAssign):
        return True  # a base, or an annotation
    return isinstance(parent, ast.Compare | ast.Tuple | ast.pattern) or any(
        isinstance(up, ast.Call) and module.last_name(up.func) in ("isinstance", "issubclass")
        for up in module.ancestors(use)
    )
