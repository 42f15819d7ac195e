"""Tests in one form, however they are written: behind ``not``, in a name, or turned around."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ....record import record
from ...source.module import Module
from ...source.tree import FUNCTIONS, everywhere, position

OF_NUMBERS: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Is: ast.Eq, ast.IsNot: ast.NotEq}
MIRRORED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
    ast.Lt: ast.Gt,
    ast.Gt: ast.Lt,
    ast.LtE: ast.GtE,
    ast.GtE: ast.LtE,
}
# Calls whose answer is in what they are called with, and in what all ranks have alike.
ANSWERED_ALIKE = {
    *("startswith", "endswith", "lower", "upper", "strip", "split", "replace", "partition"),
    *("isinstance", "hasattr", "callable", "is_available", "is_initialized"),
}
MAX_NAMES = 10  # between a test and what it stands for


@record
class Condition:
    """What an ``if`` asks, without ``not`` and behind names."""

    test: ast.expr  # where it is written, which may be an assignment above
    branches: tuple[list[ast.stmt], list[ast.stmt]]  # what runs where it holds, and where not
    is_shared: bool  # whether a name holds it that is read elsewhere, too

    @property
    def body(self) -> list[ast.stmt]:
        """The statements that run where the test holds."""
        return self.branches[0]

    @property
    def orelse(self) -> list[ast.stmt]:
        """The statements that run where the test does not hold; none for a lone ``pass``."""
        return [] if all(isinstance(s, ast.Pass) for s in self.branches[1]) else self.branches[1]


def condition(module: Module, stmt: ast.If) -> Condition:
    """The test of an ``if`` in its plain form, and the statements of its two outcomes."""
    test, holds, is_shared = plain_test(module, stmt.test)
    branches = (stmt.body, stmt.orelse) if holds else (stmt.orelse, stmt.body)
    return Condition(test, branches, is_shared)


def plain_test(module: Module, test: ast.expr) -> tuple[ast.expr, bool, bool]:
    """A test without ``not`` and behind its names.

    Whether the whole is true where the plain test holds, and whether another place reads one of
    the names.
    """
    holds, is_shared = True, False
    for _ in range(MAX_NAMES):
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test, holds = test.operand, not holds
            continue
        value = named_test(module, test)
        if value is None:
            break
        assert isinstance(test, ast.Name)
        is_shared = is_shared or reads(module, test) > 1
        test = value
    return test, holds, is_shared


def named_test(module: Module, name: ast.expr) -> ast.expr | None:
    """The test that a name holds: its function assigns it once, above and in a block around it."""
    if not isinstance(name, ast.Name):
        return None
    function = module.function(name)
    value = module.single_assignment(function, name.id)
    if not isinstance(value, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Name | ast.Attribute):
        return None
    assign = module.statement(value)
    if position(assign) > position(name) or module.parents[assign] not in module.ancestors(name):
        return None
    return value


def reads(module: Module, name: ast.Name) -> int:
    """How often a name's function, and those inside it, read the name."""
    function = module.function(name)
    return sum(
        isinstance(use.ctx, ast.Load) and (function is None or function in module.ancestors(use))
        for use in module.occurrences(name.id)
        if isinstance(use, ast.Name)
    )


def comparison(test: ast.expr) -> tuple[ast.expr, type[ast.cmpop], ast.expr] | None:
    """A comparison of two values, its literal on the right: ``0 == x`` as ``x == 0``.

    ``x is 0`` asks for the same of small numbers, and Python warns of it.
    """
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    left, kind, right = test.left, type(test.ops[0]), test.comparators[0]
    if isinstance(right, ast.Constant) and type(right.value) is int:
        kind = OF_NUMBERS.get(kind, kind)
    if is_literal(left) and not is_literal(right) and kind in MIRRORED:
        return right, MIRRORED[kind], left
    return left, kind, right


def is_equality(test: ast.Compare) -> bool:
    """Whether a comparison asks for two values to be equal."""
    sides = comparison(test)
    return sides is not None and sides[1] is ast.Eq


def asked_value(test: ast.Compare) -> ast.expr:
    """The side of a comparison that is no literal."""
    sides = comparison(test)
    return test.left if sides is None else sides[0]


def is_literal(value: ast.expr) -> bool:
    """Whether a value is a literal, with or without a sign."""
    return isinstance(value.operand if isinstance(value, ast.UnaryOp) else value, ast.Constant)


def tests_before(module: Module, node: ast.AST) -> Iterator[ast.expr]:
    """The tests around a node in its function, and those above it whose branch leaves the block."""
    child: ast.AST = node
    for up in module.ancestors(node):
        yield from tests_at(child, up)
        if isinstance(up, FUNCTIONS):
            break
        child = up


def tests_at(child: ast.AST, up: ast.AST) -> Iterator[ast.expr]:
    """The test of ``up`` over its part ``child``, and those in a block above it that leave it."""
    if isinstance(up, ast.If | ast.IfExp | ast.While) and child is not up.test:
        yield up.test
    for stmts in (getattr(up, "body", None), getattr(up, "orelse", None)):
        if isinstance(stmts, list) and [stmt for stmt in stmts if stmt is child]:
            for stmt in stmts[: stmts.index(child)]:
                if isinstance(stmt, ast.If) and leaves(stmt):
                    yield stmt.test


def leaves(stmt: ast.If) -> bool:
    """Whether a branch of a test ends in a return, a raise, or the end of the process."""
    for body in (stmt.body, stmt.orelse):
        last = body[-1] if body else None
        if isinstance(last, ast.Return | ast.Raise | ast.Continue | ast.Break):
            return True
    return False


def tests_that_hold(module: Module, node: ast.AST) -> Iterator[ast.expr]:
    """The tests in whose bodies a node stands, in its function."""
    child = node
    for up in module.ancestors(node):
        if isinstance(up, FUNCTIONS):
            return
        if isinstance(up, ast.If) and any(stmt is child for stmt in up.body):
            yield up.test
        child = up


def may_differ_by_rank(module: Module, test: ast.expr) -> bool:
    """Whether a test calls something that each rank answers for itself, such as of a file."""
    calls = everywhere(test, ast.Call)
    return any(module.last_name(call.func) not in ANSWERED_ALIKE for call in calls)
