"""Learning-rate schedules: what makes one, is one, or is told how many steps it has."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import everywhere

HORIZONS = ("t_total", "total_steps", "num_training_steps", "num_train_steps", "max_steps")
"""Arguments of optimizers that schedule themselves, and of functions that make these."""


def makes_schedule(name: str) -> bool:
    """Whether a class or function of this name creates a learning-rate schedule."""
    return "schedule" in name.lower() or name.endswith("LR")


def is_schedule(module: Module, node: ast.expr) -> bool:
    """Whether an expression is a learning-rate schedule, by its own name or its constructor's."""
    text = module.text(node)
    if "sched" in text.lower():
        return True
    constructors = (
        module.last_name(stmt.value.func)
        for stmt in module.nodes(ast.Assign)
        if isinstance(stmt.value, ast.Call) and any(module.text(t) == text for t in stmt.targets)
    )
    return any(map(makes_schedule, constructors))


def constructs_schedule(module: Module, node: ast.expr) -> bool:
    """The construction of a learning-rate schedule."""
    if not isinstance(node, ast.Call):
        return False
    name = module.last_name(node.func)
    return makes_schedule(name) or name in own_schedules(module)


def own_schedules(module: Module) -> set[str]:
    """The names of the module's classes that set a learning rate."""
    return {
        owner.name
        for owner in module.nodes(ast.ClassDef)
        if any(map(sets_rate, (t for stmt in everywhere(owner, ast.Assign) for t in stmt.targets)))
    }


def takes_horizon(module: Module, node: ast.expr) -> bool:
    """A schedule, or an optimizer that has one in it: ``BertAdam(parameters, t_total=…)``."""
    return constructs_schedule(module, node) or (
        isinstance(node, ast.Call) and any(word.arg in HORIZONS for word in node.keywords)
    )


def sets_rate(target: ast.expr) -> bool:
    """``group["lr"]``, of an optimizer's parameters."""
    return (
        isinstance(target, ast.Subscript)
        and isinstance(target.slice, ast.Constant)
        and target.slice.value == "lr"
    )
