"""Rewrites: new words inside statements, put into their text before it is parsed."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from ..source.module import Module
from ..source.tree import is_inside
from .edits import RefusedError, Rewrite
from .regions import has_block

Place = tuple[int, int]  # line, from 1, and column in bytes, as ast has them
Span = tuple[Place, Place, str]  # what stands in place of the words between
HEADS = ("test", "target", "iter")  # the parts of a compound statement's first line


def spans(stmt: ast.stmt, rewrites: Sequence[Rewrite]) -> list[Span]:
    """Where the rewrites of a statement go, in order.

    Raises RefusedError where two want the same words, or a compound statement's head takes none.
    """
    if has_block(stmt):
        parts = [part for name in HEADS if isinstance(part := getattr(stmt, name, None), ast.expr)]
        parts += [item.context_expr for item in getattr(stmt, "items", ())]
        if not all(
            one.first in parts or any(is_inside(one.first, part) for part in parts)
            for one in rewrites
        ):
            raise RefusedError(f"line {stmt.lineno}: an edit inside the head of this statement")
    found = sorted(span(rewrite) for rewrite in rewrites)
    for (_, end, _), (start, _, _) in pairwise(found):
        if start < end:
            raise RefusedError(f"line {stmt.lineno}: two edits want the same words")
    return found


def span(rewrite: Rewrite) -> Span:
    """Where a rewrite goes."""
    first, last = rewrite.first, rewrite.last or rewrite.first
    start = end_of(first) if rewrite.after else (first.lineno, first.col_offset)
    return start, (last.lineno, last.col_offset) if rewrite.before else end_of(last), rewrite.code


def end_of(node: ast.expr | ast.keyword | ast.alias) -> Place:
    """Where a node ends."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset


def with_words(module: Module, first: int, last: int, words: Sequence[Span]) -> str:
    """The text of the lines ``first`` to ``last`` with those of the sorted ``words`` in them."""
    start, end = (first, 0), (last + 1, 0)
    parts: list[str] = []
    for begin, stop, code in words[bisect_left(words, (start,)) : bisect_left(words, (end,))]:
        parts += [module.between(start, begin), code]
        start = stop
    return "".join([*parts, module.between(start, end)])
