"""Losses that a step adds up example by example, and does not divide by how many there are."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import everywhere, is_inside, within
from ..training.train_loops import TrainLoop
from .batch_sizes import is_size
from .steps_apart import names_of_batch

MAX_SUMS = 3  # sums that are added to sums


def summed_by_example(loop: TrainLoop, module: Module, loss: ast.expr) -> ast.expr | None:
    """What a sum of losses goes over, as far as it may be the examples of a batch; else None.

    ``for x, y in zip(outputs, targets): loss += f(x, y)``, and ``sum(f(*pair) for pair in …)``.
    """
    if module is not loop.module or not isinstance(loss, ast.Name):
        return None
    return next(sums_of(module, loop, loss, names_of_batch(loop)), None)


def is_divided(loop: TrainLoop, name: str) -> bool:
    """Whether a step divides something of a name, as by the number of examples."""
    return any(
        isinstance(each.op, ast.Div) and has_name(each.left, name)
        for each in within(loop.steps.body, ast.BinOp)
    ) or any(
        isinstance(each.op, ast.Div) and has_name(each.target, name)
        for each in within(loop.steps.body, ast.AugAssign)
    )


def has_name(node: ast.expr, name: str) -> bool:
    """Whether a name is in an expression."""
    return any(each.id == name for each in everywhere(node, ast.Name))


def sums_of(
    module: Module, loop: TrainLoop, loss: ast.Name, of_batch: set[str], depth: int = 0
) -> Iterator[ast.expr]:
    """What the loops and comprehensions go over that add up to a loss of a step.

    Also to a sum that is added to the loss: ``total += loss``, and behind it ``loss = total``.
    """
    if depth > MAX_SUMS or is_divided(loop, loss.id):
        return
    for store in module.stores.get((module.function(loss), loss.id), ()):
        stmt = module.statement(store)
        if not is_inside(stmt, loop.steps):
            continue
        if isinstance(stmt, ast.AugAssign | ast.Assign) and adds(stmt, loss.id):
            for up in module.ancestors(stmt):
                if up is loop.steps:
                    break
                if isinstance(up, ast.For) and (
                    goes_over_examples(module, up.iter, of_batch) or cuts_out_examples(module, up)
                ):
                    yield up.iter
            for part in everywhere(stmt.value, ast.Name):
                if part.id != loss.id and is_added_whole(module, stmt, part):
                    yield from sums_of(module, loop, part, of_batch, depth + 1)
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


def is_added_whole(module: Module, stmt: ast.AugAssign | ast.Assign, part: ast.Name) -> bool:
    """``loss += part``, and a part of ``loss = loss + part``, perhaps with a weight before it."""
    node: ast.AST = part
    while node is not stmt:
        node = module.parents[node]
        is_sum = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult)
        if node is not stmt and not is_sum:
            return False
    return True


def cuts_out_examples(module: Module, loop: ast.For) -> bool:
    """``for start, end in bounds:`` whose body cuts ``x[start:end]`` out of what examples fill.

    So does ``torch.narrow(x, 0, start, end - start)``.
    """
    target = loop.target
    if isinstance(target, ast.Tuple) and isinstance(target.elts[-1], ast.Tuple):
        target = target.elts[-1]  # for i, (start, end) in enumerate(bounds)
    match target:
        case ast.Tuple(elts=[ast.Name(id=first), ast.Name(id=last)]):
            pass
        case _:
            return False
    cuts = [
        part.elts[0] if isinstance(part, ast.Tuple) and part.elts else part
        for each in within(loop.body, ast.Subscript)
        for part in [each.slice]
    ]
    narrowed = [
        call.args[-2:]
        for call in within(loop.body, ast.Call)
        if module.last_name(call.func) == "narrow"
        and len(call.args) > 2
        and isinstance(call.args[-3], ast.Constant)
        and call.args[-3].value == 0
    ]
    is_cut = any(
        isinstance(each, ast.Slice)
        and isinstance(each.lower, ast.Name)
        and isinstance(each.upper, ast.Name)
        and (each.lower.id, each.upper.id) == (first, last)
        for each in cuts
    )
    return is_cut or any(has_name(at, first) and has_name(long, last) for at, long in narrowed)


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
