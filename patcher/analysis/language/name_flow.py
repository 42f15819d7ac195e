"""Which names of a block get something of other names, by assignments and by tests."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ....record import record
from ...source.tree import below, locate, number_of, within

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


def spread(body: list[ast.stmt], names: Iterable[str]) -> Tainted:
    """The names, and all that get something of them in a block, also by the way through tests."""
    known = set(names)
    before = -1 if known else 0
    while len(known) != before:
        before = len(known)
        for takers, givers in exchanges(body):
            if not givers.isdisjoint(known):
                known |= takers
    return Tainted(frozenset(known))


def exchanges(body: list[ast.stmt]) -> list[tuple[set[str], set[str]]]:
    """Names that get something in a block, each set with the names that it comes from or hangs on.

    Cached with the tree: the same block is asked about for one name after another.
    """
    if not body:
        return []
    table, start = locate(body[0])
    key = (exchanges, start, number_of(body[-1]))
    if key not in table.answers:
        pairs = [(taking(targets), names_in(value)) for targets, value in flows(body)]
        for test in within(body, ast.If):
            bound = [each for targets, _ in flows([*test.body, *test.orelse]) for each in targets]
            pairs.append((taking(bound), names_in(test.test)))
        table.answers[key] = pairs
    found: list[tuple[set[str], set[str]]] = table.answers[key]
    return found


def taking(targets: Iterable[ast.expr]) -> set[str]:
    """The names that assignments to some targets change."""
    return set().union(*map(roots, targets))


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
        return taking(target.elts)
    if isinstance(target, ast.Starred):
        return roots(target.value)
    while isinstance(target, ast.Subscript | ast.Attribute):
        owner = target.value
        if isinstance(target, ast.Attribute) and isinstance(owner, ast.Name) and owner.id == "self":
            return {f"self.{target.attr}"}
        target = owner
    return {target.id} if isinstance(target, ast.Name) else set()


def reached(pairs: Iterable[tuple[set[str], set[str]]], names: Iterable[str]) -> set[str]:
    """The names, and those that pairs lead to: each from any of its first to all of its second."""
    pairs, known, before = [*pairs], {*names}, -1
    while len(known) != before:
        before = len(known)
        for first, second in pairs:
            if first & known:
                known |= second
    return known
