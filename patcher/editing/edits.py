"""The edits that a rule can ask for, as data: the engine decides when and in which order.

Every edit refers to ``ast`` nodes of the module it changes, so a rule needs no positions or libcst.
"""

from __future__ import annotations

import ast
from typing import Literal

from ...record import record
from ..source.module import Module


class RefusedError(Exception):
    """An edit cannot be applied; lines in its text are those of ``module``, where it is known."""

    module: Module | None = None


@record
class Insert:
    """New statements around ``anchor``, or first or last in its body. ``code`` is not indented."""

    anchor: ast.stmt
    code: str
    where: Literal["before", "after", "first", "last"] = "before"


@record
class Replace:
    """New statements in place of ``anchor``; an empty string removes it and the comments above."""

    anchor: ast.stmt
    code: str


@record
class Rewrite:
    """New text for a span of one statement, from the start of ``first`` to the end of ``last``.

    With ``after=True`` the span starts at the end of ``first``; without ``last`` that inserts text
    after the node.
    """

    first: ast.expr | ast.keyword | ast.alias | ast.arg
    code: str
    last: ast.expr | ast.keyword | ast.alias | None = None
    after: bool = False
    before: bool = False  # the span ends where ``last`` starts


@record
class Guard:
    """Put ``anchor`` under ``if test:``, and ``orelse``, if it is not empty, under ``else:``."""

    anchor: ast.stmt
    test: str
    orelse: str = ""


@record
class Enter:
    """Put ``anchor`` under ``with manager:``."""

    anchor: ast.stmt
    manager: str


@record
class Unwrap:
    """Replace an ``if`` or ``with`` by its body, an ``elif`` by an ``else`` with its body.

    Or by the body of its ``else``; that of an ``elif`` cannot take its place.
    """

    anchor: ast.If | ast.With
    stays: Literal["body", "orelse"] = "body"


@record
class Define:
    """Insert a function or class of a ``helper_code.py``, with the imports it needs.

    Into each module that the finding changes, or that of ``anchor`` alone.
    """

    name: str
    anchor: ast.stmt | None = None


@record
class Import:
    """Make sure that ``import module`` or ``from module import name`` is at module level."""

    module: str
    name: str = ""


Edit = Insert | Replace | Rewrite | Guard | Enter | Unwrap | Define | Import
