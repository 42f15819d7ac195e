"""Where a training loop steps a learning-rate schedule: per optimizer step, or per micro-batch."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import everywhere, is_inside, mentions
from ..language.conditions import tests_before
from .train_loops import TrainLoop


def scheduler_steps(loop: TrainLoop, module: Module, made: ast.expr) -> list[ast.Call]:
    """The calls by which the loop steps the schedule ``made``."""
    stmt = module.statement(made)
    name = module.text(stmt.targets[0]) if isinstance(stmt, ast.Assign) else ""
    steps = [
        each
        for each in everywhere(loop.steps, ast.Call)
        if isinstance(each.func, ast.Attribute)
        and each.func.attr == "step"
        and not each.args
        and "sched" in loop.module.text(each.func.value).lower()
    ]
    named = [s for s in steps if name and loop.module.text(s.func).startswith(f"{name}.")]
    return named or steps


def hangs_on_step(loop: TrainLoop, node: ast.AST) -> bool:
    """Whether a place is reached with the last micro-batch of a step only."""
    assert loop.step_test is not None
    asked = names_asked(loop.module, loop.step_test.test)
    return is_inside(node, loop.step_test) or any(
        mentions(test, name) for test in tests_before(loop.module, node) for name in asked
    )


def steps_with_micro_batches(loop: TrainLoop, module: Module, made: ast.expr) -> bool:
    """Whether the loop steps the schedule ``made`` with each micro-batch."""
    stepped = scheduler_steps(loop, module, made)
    return (
        loop.step_test is not None
        and bool(stepped)
        and not any(hangs_on_step(loop, step) for step in stepped)
    )


def names_asked(module: Module, test: ast.expr) -> set[str]:
    """The variables and attributes in a test, without the objects that attributes are of."""
    names = {
        name.id
        for name in everywhere(test, ast.Name)
        if not isinstance(module.parents[name], ast.Attribute)
    }
    return names | {each.attr for each in everywhere(test, ast.Attribute)}
