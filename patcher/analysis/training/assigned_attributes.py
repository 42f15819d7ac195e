"""What classes of a program, and code that has an object of one, assign to an attribute."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ...source.branches import exclusive
from ...source.module import Module
from ...source.tree import everywhere
from ..language.call_graph import CallGraph, is_left_to_subclasses
from ..language.objects import class_of

EVALUATES = re.compile("eval|val|test|predict|infer|score", re.IGNORECASE)


def is_set_on(
    graph: CallGraph, module: Module, value: ast.expr, name: str, owner: ast.ClassDef
) -> bool:
    """Whether a value is given to an attribute of an object of a class, ``trainer.loader = …``."""
    stmt = module.statement(value)
    for target in stmt.targets if isinstance(stmt, ast.Assign) else ():
        if isinstance(target, ast.Attribute) and target.attr == name:
            found = class_of(graph, module, target.value)
            return found is not None and found[1] is owner
    return False


def is_bound_anew(
    module: Module, target: ast.Attribute, value: ast.expr, first: ast.Attribute
) -> bool:
    """Whether another method gives ``self.loader`` another loader, as for the next round.

    Not one that evaluates, which may need the attribute for its own, nor wraps what is there.
    """
    method = module.function(target)
    return (
        method is not None
        and method is not module.function(first)
        and not EVALUATES.search(method.name)
        and all(each.attr != target.attr for each in everywhere(value, ast.Attribute))
    )


def values_assigned(
    owner: tuple[Module, ast.ClassDef], name: str
) -> Iterator[tuple[Module, ast.expr, int | None]]:
    """What a class assigns to ``self.name``, in one branch or another.

    Not in a method that is there to be overridden.
    """
    module, definition = owner
    places = [
        (target, stmt.value, index)
        for stmt in everywhere(definition, ast.Assign)
        for target, index in targets_of(stmt)
        if isinstance(target, ast.Attribute) and module.text(target) == f"self.{name}"
        if (method := module.function(stmt)) is None or not is_left_to_subclasses(module, method)
    ]
    for target, value, index in places:
        first = places[0][0]
        if (
            target is first
            or exclusive(target, first)
            or is_bound_anew(module, target, value, first)
        ):
            yield module, value, index


def classes_with(
    graph: CallGraph, owner: ast.ClassDef, name: str
) -> list[tuple[Module, ast.ClassDef]]:
    """The classes below one that may assign to ``self.name`` in its place."""
    if not any(
        isinstance(each.ctx, ast.Store) for m in graph.modules for each in m.attributes(name)
    ):
        return []
    return [below for below in graph.classes_below.get(owner, ()) if below[1] is not owner]


def targets_of(stmt: ast.Assign) -> Iterator[tuple[ast.expr, int | None]]:
    """What a statement assigns to, each with its place where it is a tuple."""
    for target in stmt.targets:
        if isinstance(target, ast.Tuple):
            yield from ((element, place) for place, element in enumerate(target.elts))
        else:
            yield target, None
