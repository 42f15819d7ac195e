"""Losses that a step adds up example by example, and does not divide by how many there are."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import everywhere, is_inside, within
from ..training.train_loops import TrainLoop
from .batch_sizes import is_size
from .steps_apart import names_of_batch


def summed_by_example(loop: TrainLoop, module: Module, loss: ast.expr) -> ast.expr | None:
    """What a sum of losses goes over, as far as it may be the examples of a batch; else None.

    ``for x, y in zip(outputs, targets): loss += f(x, y)``, and ``sum(f(*pair) for pair in …)``.
    """
    if module is not loop.module or not isinstance(loss, ast.Name):
        return None
    of_batch = names_of_batch(loop)
    over = next(sums_of(module, loop, loss, of_batch), None)
    divided = any(
        isinstance(each.op, ast.Div) and has_name(each.left, loss.id)
        for each in within(loop.steps.body, ast.BinOp)
    ) or any(
        isinstance(each.op, ast.Div) and has_name(each.target, loss.id)
        for each in within(loop.steps.body, ast.AugAssign)
    )
    return None if divided else over


def has_name(node: ast.expr, name: str) -> bool:
    """Whether a name is in an expression."""
    return any(each.id == name for each in everywhere(node, ast.Name))


def sums_of(
    module: Module, loop: TrainLoop, loss: ast.Name, of_batch: set[str]
) -> Iterator[ast.expr]:
    """What the loops and comprehensions go over that add up to a loss of a step."""
    for store in module.stores.get((module.function(loss), loss.id), ()):
        stmt = module.statement(store)
        if not is_inside(stmt, loop.steps):
            continue
        if isinstance(stmt, ast.AugAssign | ast.Assign) and adds(stmt, loss.id):
            for up in module.ancestors(stmt):
                if up is loop.steps:
                    break
                if isinstance(up, ast.For) and goes_over_examples(module, up.iter, of_batch):
                    yield up.iter
        elif isinstance(stmt, ast.Assign):
            yield from summed_at_once(module, stmt.value, of_batch)


def summed_at_once(module: Module, value: ast.expr, of_batch: set[str]) -> Iterator[ast.expr]:
    """What ``sum(losses)`` and ``torch.stack(losses).sum()`` go over, of a list made of it."""
    if not isinstance(value, ast.Call) or module.last_name(value.func) != "sum":
        return
    lists = [value, *(module.definition(n, n) for n in everywhere(value, ast.Name))]
    for each in lists:
        for part in everywhere(each, ast.comprehension) if each is not None else ():
            if goes_over_examples(module, part.iter, of_batch):
                yield part.iter


def adds(stmt: ast.AugAssign | ast.Assign, name: str) -> bool:
    """``loss += …`` and ``loss = loss + …``."""
    if isinstance(stmt, ast.AugAssign):
        return isinstance(stmt.op, ast.Add)
    match stmt.value:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return has_name(left, name) or has_name(right, name)
    return False


def goes_over_examples(module: Module, over: ast.expr, of_batch: set[str]) -> bool:
    """``range(len(x))`` and ``zip(outputs, y)`` with something of the batch itself."""
    if not isinstance(over, ast.Call):
        return False
    name, parts = module.last_name(over.func), over.args
    if name == "enumerate" and parts:
        return goes_over_examples(module, parts[0], of_batch)
    if name == "zip":
        return any(isinstance(part, ast.Name) and part.id in of_batch for part in parts)
    if name == "range" and len(parts) == 1:
        return is_size(module.definition(parts[0], over) or parts[0], of_batch)
    return False
