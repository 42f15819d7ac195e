"""Find where a model reads each example as several sequences and brings their vectors together."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import everywhere, parameters

RESHAPES = ("view", "reshape")


def reshaped_parameters(module: Module, forward: ast.FunctionDef) -> frozenset[str]:
    """The parameters that become rows of one sequence each: ``ids = ids.view(-1, length)``."""
    found = set()
    for name in parameters(forward):
        value = module.single_assignment(forward, name)
        if (
            isinstance(value, ast.Call)
            and isinstance(value.func, ast.Attribute)
            and value.func.attr in RESHAPES
            and isinstance(value.func.value, ast.Name)
            and value.func.value.id == name
            and len(value.args) == 2
            and ast.unparse(value.args[0]) == "-1"
        ):
            found.add(name)
    return frozenset(found)


def group_sizes(owner: ast.ClassDef) -> Iterator[int]:
    """The ``k`` of ``x[0::k]``, of ``x.reshape(-1, k, n)`` and of a layer ``Linear(n * k, n)``."""
    candidates: list[ast.expr | None] = [cut.step for cut in everywhere(owner, ast.Slice)]
    for call in everywhere(owner, ast.Call):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if name in RESHAPES and len(call.args) == 3:
            candidates.append(call.args[1])
        width = call.args[0] if name == "Linear" and call.args else None
        if isinstance(width, ast.BinOp) and isinstance(width.op, ast.Mult):
            candidates += [width.left, width.right]
    for value in candidates:
        if isinstance(value, ast.Constant) and isinstance(value.value, int) and value.value > 0:
            yield value.value
