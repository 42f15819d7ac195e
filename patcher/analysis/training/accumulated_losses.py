"""The losses of a loop that accumulates gradients, and what counts its micro-batches."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import argument_values, everywhere, mentions, same_code, within
from ..language.conditions import plain_test
from .program import Program
from .train_loops import TrainLoop, is_backward

# Calls that make no loss of what they get.
OF_NUMBERS = ("int", "len", "max", "min", "print", "range", "round", "tqdm")


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


def adds_gradients_up(program: Program, loop: TrainLoop) -> bool:
    """Whether nothing divides by the number of micro-batches that an option tells.

    Neither the losses nor the gradients, in the loop or in a function that it calls.
    """
    wanted, module = loop.accumulation, loop.module
    if not isinstance(wanted, ast.Attribute | ast.Name) or loop.goes_back_elsewhere:
        return False
    calls = loop.backwards
    if not all(is_backward(call) and isinstance(call.func, ast.Attribute) for call in calls):
        return False
    bodies: list[list[ast.stmt]] = [loop.steps.body]
    bodies += [function.body for _, function in program.functions_below(module, *loop.steps.body)]
    return not any(
        weighs_by(node, module.last_name(wanted))
        for body in bodies
        for kind in (ast.BinOp, ast.AugAssign, ast.Call)
        for node in within(body, kind)
    )


def weighs_by(node: ast.AST, name: str) -> bool:
    """Whether something is divided or multiplied by a name, or a call may do so."""
    match node:
        case ast.BinOp(op=ast.Div(), right=value) | ast.AugAssign(op=ast.Div(), value=value):
            return mentions(value, name)
        case ast.BinOp(op=ast.Mult(), left=ast.BinOp(op=ast.Div()), right=value):
            return mentions(value, name)
        case ast.Call(func=func):
            is_of_numbers = isinstance(func, ast.Name) and func.id in OF_NUMBERS
            return not is_of_numbers and any(mentions(each, name) for each in argument_values(node))
    return False


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
