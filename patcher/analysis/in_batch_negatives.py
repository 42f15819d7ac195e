"""Losses that score each example of a batch against the others of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...record import record
from ..source.module import Module
from ..source.tree import Function, everywhere, within

TURNS = ("t", "T", "transpose", "mT")


def is_own_number(module: Module, labels: ast.expr) -> bool:
    """``torch.arange(…)``, also under a name: each example belongs to its own number."""
    value = module.definition(labels, labels) or labels
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if module.dotted(value.func) == "torch.arange":
            return True
        value = value.func.value  # torch.arange(n).to(device)
    return False


@record
class Product:
    """All pairs' scores: the expression ``node``, the vectors of its rows and of its columns."""

    node: ast.expr
    rows: ast.expr
    columns: ast.expr


def products(module: Module, scores: ast.expr) -> Iterator[Product]:
    """Products of all pairs in what ``scores`` is made of."""
    values = [scores]
    for name in everywhere(scores, ast.Name):
        value = module.definition(name, name)
        if value is not None:
            values.append(value)
    for value in values:
        yield from products_in(module, value)


def products_in(module: Module, value: ast.AST) -> Iterator[Product]:
    """Products of all pairs below a node."""
    for call in everywhere(value, ast.Call):
        last = module.last_name(call.func)
        if last == "einsum" and len(call.args) == 3:
            rule = call.args[0]
            if isinstance(rule, ast.Constant) and is_of_all_pairs(str(rule.value)):
                yield Product(call, call.args[1], call.args[2])
        elif last in ("mm", "matmul") and call.args:
            columns = turned(call.args[-1])
            rows = call.args[0] if len(call.args) == 2 else getattr(call.func, "value", None)
            if columns is not None and rows is not None:
                yield Product(call, rows, columns)
        elif last == "sum" and isinstance(call.func, ast.Attribute):
            sides = spread(call.func.value)
            if sides is not None:
                yield Product(call, *sides)
    for node in everywhere(value, ast.BinOp):
        columns = turned(node.right) if isinstance(node.op, ast.MatMult) else None
        if columns is not None:
            yield Product(node, node.left, columns)


def is_of_all_pairs(rule: str) -> bool:
    """``ab,cb->ac`` of einsum."""
    sides, _, result = rule.replace(" ", "").partition("->")
    rows, _, columns = sides.partition(",")
    if not (len(rows) == len(columns) == 2 and (rows + columns).isalpha()):
        return False
    shared = rows[1] == columns[1] and rows[0] != columns[0]
    return shared and result == rows[0] + columns[0]


def turned(node: ast.expr) -> ast.expr | None:
    """``x`` of ``x.t()``, ``x.T`` and ``x.transpose(0, 1)``."""
    inner = node.func if isinstance(node, ast.Call) else node
    if isinstance(inner, ast.Attribute) and inner.attr in TURNS:
        return inner.value
    return None


def spread(node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """``x`` and ``y`` of ``x[:, None, :] * y[None, :, :]``."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return None
    sides = {}
    for side in (node.left, node.right):
        if isinstance(side, ast.Subscript) and isinstance(side.slice, ast.Tuple):
            first = side.slice.elts[0]
            sides["rows" if isinstance(first, ast.Slice) else "columns"] = side.value
    return (sides["rows"], sides["columns"]) if len(sides) == 2 else None


@record
class Mask:
    """A comparison ``node`` of every label with every other, and where the labels come from."""

    node: ast.expr
    labels: tuple[ast.expr, ast.expr]


def masked(module: Module) -> Iterator[tuple[Product, Mask]]:
    """Products in a forward whose pairs a mask of equal labels sorts, and the mask."""
    for function in module.all_functions:
        mask = next(masks(function), None) if function.name == "forward" else None
        product = next(products_in(module, function), None) if mask else None
        if mask and product:
            yield product, mask


def masks(function: Function) -> Iterator[Mask]:
    """Comparisons of every label with every other."""
    for test in within(function.body, ast.Compare):
        if isinstance(test.ops[0], ast.Eq):
            yield from every_pair(test, test.left, test.comparators[0])
    for call in within(function.body, ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "eq":
            sides = (call.func.value, *call.args)[-2:]  # torch.eq(a, b) and a.eq(b)
            yield from every_pair(call, *sides)


def every_pair(node: ast.expr, left: ast.expr, right: ast.expr) -> Iterator[Mask]:
    """The mask that a comparison makes, where it is of all pairs."""
    longer = [is_lengthened(left), is_lengthened(right)]
    bases = base(left), base(right)
    names = [each.id for each in bases if isinstance(each, ast.Name)]
    if all(longer) or (any(longer) and len(names) == 2 and len(set(names)) == 1):
        yield Mask(node, bases)


def is_lengthened(node: ast.expr) -> bool:
    """``x[:, None]``, ``x.unsqueeze(1)`` and ``x.T``."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
        return any(isinstance(e, ast.Constant) and e.value is None for e in node.slice.elts)
    return (
        turned(node) is not None or getattr(getattr(node, "func", None), "attr", "") == "unsqueeze"
    )


def base(node: ast.expr) -> ast.expr:
    """``x`` of ``x[:, None]``, ``x.unsqueeze(0)`` and ``x.T``."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node
