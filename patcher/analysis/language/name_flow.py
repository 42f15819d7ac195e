"""Which names of a block get something of other names, by assignments and by tests."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ....record import record
from ...source.module import Module
from ...source.tree import below, within

FILLING = ("append", "extend", "add", "update", "insert", "copy_")


@record
class Tainted:
    """Names whose value hangs on the batch."""

    names: frozenset[str]


def names_in(node: ast.AST) -> set[str]:
    """The names in code; ``self.x`` is one, and ``self`` alone is none."""
    found = set()
    for part in below(node):
        if isinstance(part, ast.Name) and part.id != "self":
            found.add(part.id)
        elif (
            isinstance(part, ast.Attribute)
            and isinstance(part.value, ast.Name)
            and part.value.id == "self"
        ):
            found.add(f"self.{part.attr}")
    return found


def spread(module: Module, body: list[ast.stmt], names: Iterable[str]) -> Tainted:
    """The names, and all that get something of them in a block, also by the way through tests."""
    known = set(names)
    while True:
        before = len(known)
        for targets, value in flows(body):
            if names_in(value) & known:
                for target in targets:
                    known |= roots(target)
        for test in within(body, ast.If):
            if names_in(test.test) & known:
                for stmt in (*test.body, *test.orelse):
                    for targets, _ in flows([stmt]):
                        known |= set().union(*map(roots, targets))
        if len(known) == before:
            return Tainted(frozenset(known))


def flows(body: list[ast.stmt]) -> Iterator[tuple[list[ast.expr], ast.expr]]:
    """What is bound or filled in a block, and the value that it gets."""
    for assign in within(body, ast.Assign):
        yield assign.targets, assign.value
    for add in within(body, ast.AugAssign):
        yield [add.target], add.value
    for annotated in within(body, ast.AnnAssign):
        if annotated.value is not None:
            yield [annotated.target], annotated.value
    for walrus in within(body, ast.NamedExpr):
        yield [walrus.target], walrus.value
    for loop in within(body, ast.For):
        yield [loop.target], loop.iter
    for block in within(body, ast.With):
        for item in block.items:
            if item.optional_vars is not None:
                yield [item.optional_vars], item.context_expr
    for call in within(body, ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr in FILLING:
            for value in call.args:
                yield [call.func.value], value


def roots(target: ast.expr) -> set[str]:
    """The names that an assignment to a target changes."""
    if isinstance(target, ast.Tuple | ast.List):
        return set().union(*map(roots, target.elts))
    if isinstance(target, ast.Starred):
        return roots(target.value)
    while isinstance(target, ast.Subscript | ast.Attribute):
        owner = target.value
        if isinstance(target, ast.Attribute) and isinstance(owner, ast.Name) and owner.id == "self":
            return {f"self.{target.attr}"}
        target = owner
    return {target.id} if isinstance(target, ast.Name) else set()
