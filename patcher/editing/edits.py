"""What a rule may ask the engine to do. Data only: the engine owns where, when and in which order.

Every edit names ``ast`` nodes of the module it changes, so a rule never sees positions or libcst.
"""

from __future__ import annotations

import ast
from typing import Literal

from ...record import record


class RefusedError(Exception):
    """An edit that cannot be carried out as asked."""


@record
class Insert:
    """New statements beside ``anchor``, or first or last in its body. ``code`` is not indented."""

    anchor: ast.stmt
    code: str
    where: Literal["before", "after", "first", "last"] = "before"


@record
class Replace:
    """New statements in the place of ``anchor``; the empty string removes it with its comments."""

    anchor: ast.stmt
    code: str


@record
class Rewrite:
    """New text for a span of one statement, from the start of ``first`` to the end of ``last``.

    ``after=True`` leaves ``first`` alone and takes the span from its end: with
    ``first is last`` it is an insertion behind the node.
    """

    first: ast.expr | ast.keyword | ast.alias
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
class Unwrap:
    """Replace an ``if`` or ``with`` by its body; an ``elif`` becomes the ``else`` that holds it."""

    anchor: ast.If | ast.With


@record
class Define:
    """Carry one of the functions or classes of ``helper_code.py``, with the imports it needs."""

    name: str


@record
class Import:
    """Make sure that ``import module`` or ``from module import name`` holds at module level."""

    module: str
    name: str = ""


Edit = Insert | Replace | Rewrite | Guard | Unwrap | Define | Import
