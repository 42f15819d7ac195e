"""The statements of an ``ast`` tree and those of a libcst tree, which stand in the same order.

One walk over both pairs them; libcst's position provider, which costs more than parsing, is not
needed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import libcst as cst


def pairs(
    body: Sequence[ast.stmt], nodes: Sequence[cst.CSTNode]
) -> Iterator[tuple[ast.stmt, cst.CSTNode]]:
    """Each statement with its libcst node; of ``a; b`` each small statement with its own."""
    rest = iter(body)
    for node in nodes:
        if isinstance(node, cst.SimpleStatementLine):
            small = list(zip((next(rest) for _ in node.body), node.body, strict=True))
            yield from small if len(small) > 1 else [(small[0][0], node)]
        else:
            stmt = next(rest)
            yield stmt, node
            yield from blocks(stmt, node)


def suite(
    body: Sequence[ast.stmt], block: cst.CSTNode | None
) -> Iterator[tuple[ast.stmt, cst.CSTNode]]:
    match block:
        case cst.IndentedBlock():
            yield from pairs(body, block.body)
        case cst.SimpleStatementSuite():
            yield from zip(body, block.body, strict=True)
        case cst.Else() | cst.Finally():
            yield from suite(body, block.body)
        case cst.If():  # elif
            yield body[0], block
            yield from blocks(body[0], block)


def blocks(stmt: ast.stmt, node: cst.CSTNode) -> Iterator[tuple[ast.stmt, cst.CSTNode]]:
    """The statements inside a compound statement."""
    if isinstance(stmt, ast.Match) and isinstance(node, cst.Match):
        for case, branch in zip(stmt.cases, node.cases, strict=True):
            yield from suite(case.body, branch.body)
        return
    yield from suite(getattr(stmt, "body", []), getattr(node, "body", None))
    yield from suite(getattr(stmt, "orelse", []), getattr(node, "orelse", None))
    yield from suite(getattr(stmt, "finalbody", []), getattr(node, "finalbody", None))
    for handler, branch in zip(
        getattr(stmt, "handlers", []), getattr(node, "handlers", ()), strict=True
    ):
        yield from suite(handler.body, branch.body)
