"""Losses that score each example of a batch against the others of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from .module import Module
from .syntax import everywhere, within

ROWS_BY_COLUMNS = r"(\w)(\w),(?!\1)(\w)\2->\1\3"


def is_own_number(module: Module, labels: ast.expr) -> bool:
    """``torch.arange(…)``, also under a name: each example belongs to its own number."""
    value = module.definition(labels, labels) or labels
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if module.dotted(value.func) == "torch.arange":
            return True
        value = value.func.value  # torch.arange(n).to(device)
    return False


def products(module: Module, scores: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Products of all pairs in what ``scores`` is made of, and the vectors of their columns."""
    values = [scores]
    for name in everywhere(scores, ast.Name):
        value = module.definition(name, name)
        if value is not None:
            values.append(value)
    for value in values:
        for call in everywhere(value, ast.Call):
            last = module.last_name(call.func)
            if last == "einsum" and len(call.args) == 3:
                rule = call.args[0]
                text = str(rule.value) if isinstance(rule, ast.Constant) else ""
                if re.fullmatch(ROWS_BY_COLUMNS, text.replace(" ", "")):
                    yield call, call.args[2]
            elif last in ("mm", "matmul") and call.args:
                columns = turned(call.args[-1])
                if columns is not None:
                    yield call, columns
            elif last == "sum" and isinstance(call.func, ast.Attribute):
                columns = spread(call.func.value)
                if columns is not None:
                    yield call, columns
        for node in everywhere(value, ast.BinOp):
            columns = turned(node.right) if isinstance(node.op, ast.MatMult) else None
            if columns is not None:
                yield node, columns


def turned(node: ast.expr) -> ast.expr | None:
    """``x`` of ``x.t()``, ``x.T`` and ``x.transpose(0, 1)``."""
    inner = node.func if isinstance(node, ast.Call) else node
    if isinstance(inner, ast.Attribute) and inner.attr in ("t", "T", "transpose", "mT"):
        return inner.value
    return None


def spread(node: ast.expr) -> ast.expr | None:
    """``y`` of ``x[:, None, :] * y[None, :, :]``."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return None
    sides = {}
    for side in (node.left, node.right):
        if isinstance(side, ast.Subscript) and isinstance(side.slice, ast.Tuple):
            first = side.slice.elts[0]
            sides["rows" if isinstance(first, ast.Slice) else "columns"] = side.value
    return sides.get("columns") if len(sides) == 2 else None


def masked(module: Module) -> Iterator[tuple[ast.Call, ast.Compare]]:
    """Products in a forward whose pairs a mask of equal labels sorts, and the mask."""
    for call in module.calls_to("mm", "matmul"):
        function = module.function(call)
        if function is None or function.name != "forward" or not call.args:
            continue
        if turned(call.args[-1]) is None:
            continue
        for test in within(function.body, ast.Compare):
            sides = (test.left, test.comparators[0])
            if isinstance(test.ops[0], ast.Eq) and all(
                isinstance(side, ast.Subscript)
                and isinstance(side.slice, ast.Tuple)
                and any(isinstance(e, ast.Constant) and e.value is None for e in side.slice.elts)
                for side in sides
            ):
                yield call, test
