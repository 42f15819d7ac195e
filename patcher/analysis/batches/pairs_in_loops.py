"""Losses of pairs of a batch's examples, in two loops over their numbers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set

from ...source.module import Module
from ...source.tree import Function, everywhere, within
from ..language.name_flow import flows, names_in, spread, taking
from .loss_names import made_from

BATCH_SIZE = re.compile(r"(batch_?size|bsz|bs|n_?batch)", re.IGNORECASE)
AS_NUMBERS = ("item", "tolist", "numpy")  # what is looked at, and goes into no loss

Evidence = tuple[ast.expr, str]


def pairs_of_examples(module: Module, body: list[ast.stmt], losses: Set[str]) -> Iterator[Evidence]:
    """``similar(x[i], y[j])`` in ``for i in range(len(x)): for j in range(len(x)):``."""
    for outer in within(body, ast.For):
        number = number_of_example(module, outer)
        for inner in within(outer.body, ast.For) if number else ():
            other = number_of_example(module, inner)
            if not other or other == number:
                continue
            others = spread(inner.body, {other}).names - {number}
            for node in [*within(inner.body, ast.Call), *within(inner.body, ast.BinOp)]:
                parts = [each for each in everywhere(node, ast.Subscript) if is_row(each)]
                rows = {str(getattr(each.slice, "id", "")) for each in parts}
                stmt = module.statement(node)
                plain = [stmt] if isinstance(stmt, ast.Assign | ast.AugAssign | ast.Expr) else []
                bound = [taking(targets) for targets, _ in flows(plain)]
                in_losses = any(not losses.isdisjoint(names) for names in bound)
                is_pair = number in rows and not rows.isdisjoint(others)
                if is_pair and in_losses and not is_looked_at(module, node):
                    yield node, f"{module.text(node)[:60]} compares each example with the others"
                    return


def pairs_in_function(module: Module, function: Function) -> Iterator[Evidence]:
    """The same in a function that returns what it makes of such pairs."""
    returns = within(function.body, ast.Return)
    names = {name for each in returns if each.value for name in names_in(each.value)}
    if names and any(within(each.body, ast.For) for each in within(function.body, ast.For)):
        yield from pairs_of_examples(module, function.body, made_from(function.body, names))


def is_row(part: ast.Subscript) -> bool:
    return isinstance(part.slice, ast.Name) and isinstance(part.value, ast.Name)


def is_looked_at(module: Module, node: ast.expr) -> bool:
    """Whether a number is taken of what a statement computes: ``similar(x[i], x[j]).item()``."""
    calls = everywhere(module.statement(node), ast.Call)
    return any(module.last_name(call.func) in AS_NUMBERS for call in calls)


def number_of_example(module: Module, loop: ast.For) -> str:
    """``i`` of ``for i in range(len(x)):``, and of one over a batch size; or empty."""
    match loop:
        case ast.For(
            target=ast.Name(id=name),
            iter=ast.Call(func=ast.Name(id="range"), args=[*_, end], keywords=[]),
        ):
            return name if counts_examples(module, end) else ""
    return ""


def counts_examples(module: Module, end: ast.expr) -> bool:
    """``len(x)``, ``x.size(0)``, ``x.shape[0]``, a name for one of these, or for a batch size."""
    match end:
        case ast.Call(func=ast.Name(id="len"), args=[ast.Name()]):
            return True
        case ast.Call(func=ast.Attribute(attr="size"), args=[ast.Constant(value=0)]):
            return True
        case ast.Subscript(value=ast.Attribute(attr="shape"), slice=ast.Constant(value=0)):
            return True
        case ast.Name(id=name):
            made = module.definition(end, end)
            is_size = BATCH_SIZE.fullmatch(name) is not None
            return is_size or (made is not None and counts_examples(module, made))
    return False
