"""Pair the statements of an ``ast`` tree with those of a libcst tree, by walking both in order."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import libcst as cst


def pair_statements(
    body: Sequence[ast.stmt], nodes: Sequence[cst.CSTNode]
) -> Iterator[tuple[ast.stmt, cst.CSTNode]]:
    """Each statement with its libcst node; in ``a; b`` each small statement with its own."""
    rest = iter(body)
    for node in nodes:
        if isinstance(node, cst.SimpleStatementLine):
            small = list(zip((next(rest) for _ in node.body), node.body, strict=True))
            yield from small if len(small) > 1 else [(small[0][0], node)]
        else:
            stmt = next(rest)
            yield stmt, node
            yield from _block_pairs(stmt, node)


def _suite_pairs(
    body: Sequence[ast.stmt], block: cst.CSTNode | None
) -> Iterator[tuple[ast.stmt, cst.CSTNode]]:
    """Pairs of the statements of one block of a compound statement."""
    match block:
        case cst.IndentedBlock():
            yield from pair_statements(body, block.body)
        case cst.SimpleStatementSuite():
            yield from zip(body, block.body, strict=True)
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
