"""Put code behind the statement that binds a name, or above the head that does."""

from __future__ import annotations

import ast
import re

from ..analysis.language.results import binding_in_head
from ..editing.edits import Edit, Insert, Rewrite
from ..source.module import Module

OPENING, CLOSING = re.compile(r"\(\s*"), re.compile(r"\s*\)")


def behind_binding(module: Module, stmt: ast.stmt, name: str, code: str) -> tuple[Edit, ...]:
    """Edits that put code behind a statement that binds a name.

    ``if (name := value).flag:`` binds it in its head, which gets a statement of its own above.
    """
    binding = binding_in_head(stmt, name)
    if binding is None:
        return (Insert(stmt, code, "after"),)
    value = module.text(binding.value)
    value = f"({value})" if "\n" in value else value  # as those around the binding
    return (
        read_in_place(module, binding),
        Insert(stmt, f"{name} = {value}\n{code}"),
    )


def read_in_place(module: Module, binding: ast.NamedExpr) -> Rewrite:
    """An edit that leaves the name alone of ``(name := value)``, without the parentheses."""
    around = module.parents[binding]
    name = binding.target.id
    if isinstance(around, ast.expr):
        start = (around.lineno, around.col_offset), (binding.lineno, binding.col_offset)
        head = module.text_between(*start)
        rest = module.text(around)[len(head) + len(module.text(binding)) :]
        closing = CLOSING.match(rest)
        if OPENING.fullmatch(head) and closing:
            return Rewrite(around, name + rest[closing.end() :])
    return Rewrite(binding, name)
