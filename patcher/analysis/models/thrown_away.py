"""Wrappers of a model that nothing keeps: ``model == DDP(model)``, and ``DDP(model)`` alone."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import only_argument
from ..training.program import Program


def thrown_away(program: Program) -> list[tuple[Module, ast.Call]]:
    """Calls that wrap a model in DistributedDataParallel, where nothing gets what they return."""
    wraps = program.calls_to("DistributedDataParallel")
    return [(module, call) for module, call in wraps if is_thrown_away(module, call)]


def is_thrown_away(module: Module, call: ast.Call) -> bool:
    """Whether a statement computes a value and does nothing with it."""
    above = module.parents[call]
    if isinstance(above, ast.Compare):
        above = module.parents[above]
    return isinstance(above, ast.Expr)


def wrapped_name(module: Module, call: ast.Call) -> str:
    """``model`` of ``DDP(model, …)``, or ``self.model``; empty where it is anything else."""
    model = call.args[0] if call.args else only_argument(call, "module")
    is_name = isinstance(model, ast.Name) or (
        isinstance(model, ast.Attribute) and isinstance(model.value, ast.Name)
    )
    return module.text(model) if model is not None and is_name else ""
