"""The losses of a loop that accumulates gradients, and what counts its micro-batches."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import everywhere, same_code, within
from ..language.conditions import plain_test
from .train_loops import TrainLoop


def counts_on(loop: TrainLoop) -> str:
    """What counts micro-batches from epoch to epoch, beside the last ones of each; or empty.

    ``global_step % n == 0 or step + 1 == len(loader)`` steps at other batches in each epoch, so
    that the number of a batch in its epoch does not tell which ones it is stepped with.
    """
    module, test = loop.module, loop.step_test
    if test is None or loop.accumulation is None or not loop.step_name:
        return ""
    plain = plain_test(module, test.test)[0]
    if not isinstance(plain, ast.BoolOp):
        return ""
    for node in everywhere(plain, ast.BinOp):
        if isinstance(node.op, ast.Mod) and same_code(node.right, loop.accumulation):
            names = {name.id for name in everywhere(node.left, ast.Name)}
            if (
                names
                and loop.step_name not in names
                and not any(is_bound_by_step(loop, name) for name in names)
            ):
                return module.text(node.left)
    return ""


def is_bound_by_step(loop: TrainLoop, name: str) -> bool:
    """Whether a name is made of the number of the batch: ``number = step + 1``."""
    return any(
        isinstance(target, ast.Name)
        and target.id == name
        and any(each.id == loop.step_name for each in everywhere(stmt.value, ast.Name))
        for stmt in within(loop.steps.body, ast.Assign)
        for target in stmt.targets
    )


def loss_divisions(loop: TrainLoop) -> Iterator[ast.BinOp]:
    """``loss / accumulation`` in the loop, where ``backward()`` runs on the quotient.

    Also of what is added: ``loss += other / accumulation``.
    """
    module = loop.module
    assert loop.accumulation is not None
    losses = [call.func.value for call in loop.backwards if isinstance(call.func, ast.Attribute)]
    losses += [inner for loss in losses for inner in scaled(module, loss)]
    names = {module.text(loss) for loss in losses}
    for node in within(loop.steps.body, ast.BinOp):
        if not isinstance(node.op, ast.Div) or not same_code(node.right, loop.accumulation):
            continue
        stmt = module.parents[node]
        if node in losses:
            yield node
        elif isinstance(stmt, ast.Assign) and len(stmt.targets) == 1:
            target = module.text(stmt.targets[0])
            if target in names or target == module.text(node.left):
                yield node
        elif (
            isinstance(stmt, ast.AugAssign)
            and isinstance(stmt.op, ast.Add)
            and module.text(stmt.target) in names
        ):
            yield node


def scaled(module: Module, loss: ast.expr) -> list[ast.expr]:
    """``loss`` of ``scaler.scale(loss)``, and of ``with scale_loss(loss, optimizer) as name``."""
    if isinstance(loss, ast.Call):
        return loss.args[:1]
    return [
        value
        for up in module.ancestors(loss)
        if isinstance(up, ast.With)
        for item in up.items
        if item.optional_vars is not None
        and isinstance(item.context_expr, ast.Call)
        and module.last_name(item.context_expr.func) == "scale_loss"
        and module.text(item.optional_vars) == module.text(loss)
        for value in item.context_expr.args[:1]
    ]
