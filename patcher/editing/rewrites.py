"""Apply ``Rewrite`` edits to the text of statements, before libcst parses it."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from ..source.module import Module
from ..source.tree import FUNCTIONS, everywhere, is_inside
from .edits import RefusedError, Rewrite
from .regions import has_block

Place = tuple[int, int]  # line (1-based) and column in bytes, as in ast
Span = tuple[Place, Place, str]  # start, end, and the text that replaces what is between
HEADS = ("test", "target", "iter")  # fields in the head of a compound statement


def rewrite_spans(stmt: ast.stmt, rewrites: Sequence[Rewrite]) -> list[Span]:
    """The spans of a statement's rewrites, in order.

    Raises RefusedError when two overlap, or one is not in a rewritable part of a compound
    statement's head.
    """
    if has_block(stmt):
        parts: list[ast.AST] = [
            part for name in HEADS if isinstance(part := getattr(stmt, name, None), ast.expr)
        ]
        parts += [item.context_expr for item in getattr(stmt, "items", ())]
        if isinstance(stmt, FUNCTIONS):
            parts += [*everywhere(stmt.args, ast.arg), *stmt.args.defaults]
            parts += [each for each in stmt.args.kw_defaults if each is not None]
        if not all(
            one.first in parts or any(is_inside(one.first, part) for part in parts)
            for one in rewrites
        ):
            raise RefusedError(f"line {stmt.lineno}: an edit inside the head of this statement")
    ordered = sorted(span(rewrite) for rewrite in rewrites)
    for (_, end, _), (start, _, _) in pairwise(ordered):
        if start < end:
            raise RefusedError(f"line {stmt.lineno}: two edits want the same words")
    return ordered


def span(rewrite: Rewrite) -> Span:
    """The span that a rewrite replaces."""
    first, last = rewrite.first, rewrite.last or rewrite.first
    start = end_of(first) if rewrite.after else (first.lineno, first.col_offset)
    return start, (last.lineno, last.col_offset) if rewrite.before else end_of(last), rewrite.code


def end_of(node: ast.expr | ast.keyword | ast.alias | ast.arg) -> Place:
    """The place where a node ends."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset


def replace_spans(module: Module, first: int, last: int, spans: Sequence[Span]) -> str:
    """The text of lines ``first`` to ``last`` after the replacements among the sorted spans."""
    start, end = (first, 0), (last + 1, 0)
    parts: list[str] = []
    for begin, stop, code in spans[bisect_left(spans, (start,)) : bisect_left(spans, (end,))]:
        parts += [module.text_between(start, begin), code]
        start = stop
    return "".join([*parts, module.text_between(start, end)])
