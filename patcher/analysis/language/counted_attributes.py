"""Attributes that count calls, as ``self.iteration`` does: every rank's object counts alike."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import Function, is_number
from .names import ModuleSet, answered_once


@answered_once
def counted_attributes(modules: ModuleSet) -> frozenset[str]:
    """The attributes that methods add a number to under no test, and that hold nothing else.

    But for what a checkpoint holds: ``self.iteration = state["iteration"]``.
    """
    added: dict[str, bool] = {}
    for module in modules.modules:
        for stmt in module.nodes(ast.AugAssign):
            if isinstance(stmt.target, ast.Attribute):
                name = stmt.target.attr
                added[name] = added.get(name, True) and adds_always(module, stmt)
    return frozenset(
        name
        for name, is_counted in added.items()
        if is_counted
        and all(
            is_start(value)
            for module in modules.modules
            for value in module.attribute_values.get(name, ())
        )
    )


def adds_always(module: Module, stmt: ast.AugAssign) -> bool:
    """Whether each call of a method adds the same number."""
    return (
        isinstance(stmt.op, ast.Add | ast.Sub)
        and is_number(stmt.value)
        and isinstance(module.parents[stmt], Function)
    )


def is_start(value: ast.expr) -> bool:
    """A number, or one of a checkpoint."""
    match value:
        case ast.Subscript(slice=ast.Constant(value=str())):
            return True
    return is_number(value)
