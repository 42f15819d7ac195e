"""Blocks that write a file, and that rank 0 alone can run."""

from __future__ import annotations

import ast

from ..analysis.training.program import Program
from ..source.module import Module
from ..source.tree import bound_names, is_inside, names_within, precedes, within
from .written_by_one import needs_all_ranks

MUTATING_METHODS = (
    "append",
    "extend",
    "update",
    "add",
    "insert",
    "pop",
    "remove",
    "setdefault",
    "clear",
)


def may_be_left_to_main(program: Program, module: Module, stmt: ast.With | ast.If) -> bool:
    """Whether no other rank needs what a block computes."""
    return (
        not leaves_function(stmt)
        and not is_read_outside(module, stmt, changed_names(stmt))
        and not needs_all_ranks(program, module, stmt)
    )


def leaves_function(stmt: ast.With | ast.If) -> bool:
    """Whether a block yields or returns: without it, its function does other things."""
    return any(within(stmt, kind) for kind in (ast.Yield, ast.YieldFrom, ast.Return))


def changed_names(stmt: ast.With | ast.If) -> set[str]:
    """Names that the statement binds, other than its files, and objects that it may change."""
    items = stmt.items if isinstance(stmt, ast.With) else []
    files = set().union(*(bound_names(i.optional_vars) for i in items if i.optional_vars))
    names = bound_names(stmt)
    accesses: list[ast.Attribute | ast.Subscript] = [*within(stmt, ast.Attribute)]
    for node in (*accesses, *within(stmt, ast.Subscript)):
        base: ast.expr = node.value
        while isinstance(base, ast.Attribute | ast.Subscript):
            base = base.value
        changes_base = not isinstance(node.ctx, ast.Load) or (
            isinstance(node, ast.Attribute) and node.attr in MUTATING_METHODS
        )
        if isinstance(base, ast.Name) and changes_base:
            names.add(base.id)
    return names - files


def is_read_outside(module: Module, stmt: ast.stmt, names: set[str]) -> bool:
    """Whether the function reads one of the names after the statement.

    In a loop, reads above the statement count as well: the next pass runs them.
    """
    in_loop = any(isinstance(up, (ast.For, ast.While)) for up in module.ancestors(stmt))
    return any(
        isinstance(name.ctx, ast.Load)
        and not is_inside(name, stmt)
        and (in_loop or precedes(stmt, name))
        for name in names_within(module.scope_statements(stmt), names)
    )
