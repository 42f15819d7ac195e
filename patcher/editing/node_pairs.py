"""Pair the statements of an ``ast`` tree with those of a libcst tree, by walking both in order.

Strings that the ``ast`` tree leaves out (see source/normal_form) have no pair.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator, Sequence

import libcst as cst

from ..source.normal_form import is_string


def pair_statements(
    body: Sequence[ast.stmt], nodes: Sequence[cst.CSTNode]
) -> Iterator[tuple[ast.stmt, cst.CSTNode]]:
    """Each statement with its libcst node; in ``a; b`` each small statement with its own."""
    rest = deque(body)
    for node in nodes:
        if isinstance(node, cst.SimpleStatementLine):
            is_joined = len(node.body) > 1
            for stmt, small in _small_pairs(rest, node.body):
                yield stmt, small if is_joined else node
        else:
            stmt = rest.popleft()
            yield stmt, node
            yield from _block_pairs(stmt, node)
    assert not rest


def _small_pairs(
    rest: deque[ast.stmt], nodes: Sequence[cst.BaseSmallStatement]
) -> Iterator[tuple[ast.stmt, cst.CSTNode]]:
    """Pairs of the statements of one line; takes them from ``rest``."""
    for small in nodes:
        if not _is_string(small) or (rest and is_string(rest[0])):
            yield rest.popleft(), small


def _is_string(node: cst.BaseSmallStatement) -> bool:
    match node:
        case cst.Expr(value=cst.SimpleString() | cst.ConcatenatedString() as value):
            return isinstance(value.evaluated_value, str)
    return False


def _suite_pairs(
    body: Sequence[ast.stmt], block: cst.CSTNode | None
) -> Iterator[tuple[ast.stmt, cst.CSTNode]]:
    """Pairs of the statements of one block of a compound statement."""
    match block:
        case cst.IndentedBlock():
            yield from pair_statements(body, block.body)
        case cst.SimpleStatementSuite():
            yield from _small_pairs(deque(body), block.body)
        case cst.Else() | cst.Finally():
            yield from _suite_pairs(body, block.body)
        case cst.If():  # elif
            yield body[0], block
            yield from _block_pairs(body[0], block)


def _block_pairs(stmt: ast.stmt, node: cst.CSTNode) -> Iterator[tuple[ast.stmt, cst.CSTNode]]:
    """Pairs of the statements inside a compound statement."""
    if isinstance(stmt, ast.Match) and isinstance(node, cst.Match):
        for case, branch in zip(stmt.cases, node.cases, strict=True):
            yield from _suite_pairs(case.body, branch.body)
        return
    yield from _suite_pairs(getattr(stmt, "body", []), getattr(node, "body", None))
    yield from _suite_pairs(getattr(stmt, "orelse", []), getattr(node, "orelse", None))
    yield from _suite_pairs(getattr(stmt, "finalbody", []), getattr(node, "finalbody", None))
    for handler, branch in zip(
        getattr(stmt, "handlers", []), getattr(node, "handlers", ()), strict=True
    ):
        yield from _suite_pairs(handler.body, branch.body)
