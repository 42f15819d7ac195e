"""Models that a file gives whole to a name, behind the wrapper that the name stood for."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.branches import exclusive
from ...source.module import Module
from ...source.tree import precedes


def loaded_over(module: Module, wrap: ast.Call) -> Iterator[ast.Assign]:
    """``model = torch.load(path)["model"]`` behind ``model = DistributedDataParallel(model)``."""
    stmt = module.statement(wrap)
    if not (isinstance(stmt, ast.Assign) and stmt.value is wrap):
        return
    (name, *_) = stmt.targets
    if not isinstance(name, ast.Name):
        return
    for store in module.stores.get((module.function(wrap), name.id), ()):
        anew = module.parents[store]
        if (
            isinstance(anew, ast.Assign)
            and precedes(stmt, anew)
            and not exclusive(stmt, anew)
            and is_loaded(module, anew.value)
        ):
            yield anew


def is_loaded(module: Module, value: ast.expr) -> bool:
    """``torch.load(path)``, and ``checkpoint["net"]`` of such a file."""
    while isinstance(value, ast.Subscript):
        value = value.value
    made = module.definition(value, value) if isinstance(value, ast.Name) else value
    return isinstance(made, ast.Call) and module.dotted(made.func) == "torch.load"
