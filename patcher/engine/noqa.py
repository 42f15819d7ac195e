"""Silence findings by ``# noqa`` comments, and report comments that silence nothing.

``# noqa`` alone silences everything on its line, ``# noqa: DF101, DF5`` codes with these prefixes.
A comment at the end of a statement of several lines counts for all of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ..codes import all_codes
from ..findings import Finding, Safety, Severity
from ..source.comments import Comment, comments
from ..source.module import cached_per_module

if TYPE_CHECKING:
    from ..source.module import Module

CODES = r"[A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*"
NOQA = rf"#\s*noqa(?:\s*:\s*(?P<codes>{CODES})|(?!\s*:|\w))"  # compiled where a file has one
UNUSED_NOQA = "DF100"  # the rule that reports unused comments


class Noqa:
    """A noqa comment, its codes (None for all), and those that have silenced a finding."""

    def __init__(self, comment: Comment, codes: tuple[str, ...] | None) -> None:
        self.comment = comment
        self.codes = codes
        self.used: set[str] = set()

    def silences(self, finding: Finding) -> bool:
        """Whether the comment silences a finding; records the codes that did."""
        if finding.line not in self.comment.lines:
            return False
        if self.codes is None:
            return True
        matching = {code for code in self.codes if finding.code.startswith(code)}
        self.used |= matching
        return bool(matching)


def noqas(module: Module) -> list[Noqa]:
    """All noqa comments of a file."""
    return [Noqa(comment, codes or None) for comment, codes in noqa_comments(module)]


@cached_per_module
def noqa_comments(module: Module) -> list[tuple[Comment, tuple[str, ...]]]:
    """The noqa comments of a file, each with its codes, () for all."""
    text = module.source.text
    if "noqa" not in text.lower():
        return []
    every = [(comment, codes_in(comment.text)) for comment in comments(text)]
    return [(comment, codes) for comment, codes in every if codes is not None]


def codes_in(text: str) -> tuple[str, ...] | None:
    """The codes of a noqa comment, () for all of them; None for any other comment."""
    match = re.search(NOQA, text, re.IGNORECASE)
    return match and tuple(re.findall(r"[A-Z]+[0-9]+", (match["codes"] or "").upper()))


def drop_silenced(findings: Iterable[Finding], table: dict[Module, list[Noqa]]) -> list[Finding]:
    """Findings that no comment silences; the comments record the codes that they used."""
    return [
        finding
        for finding in findings
        # A list, so that every matching comment records its codes.
        if not any([noqa.silences(finding) for noqa in table[finding.module]])  # noqa: C419
    ]


def unused_noqas(module: Module, comments: list[Noqa], ran: set[str]) -> Iterator[Finding]:
    """Findings for ddpfix codes in noqa comments that silenced nothing though their rules ``ran``.

    ``comments`` are those of ``module``, after all other findings went through ``audible``.
    """
    every = all_codes() if comments else []
    for noqa in comments:
        for code in noqa.codes or ():
            if not is_ddpfix_code(code) or code in noqa.used:
                continue
            matching = {rule_code for rule_code in every if rule_code.startswith(code)}
            if not matching:
                because = f"there is no rule {code}"
            elif matching <= ran:
                because = f"{code} finds nothing here"
            else:
                continue
            row, column = noqa.comment.row, noqa.comment.column
            indent = len(module.line(row)[:column].encode())
            place = ast.Pass(lineno=row, col_offset=indent, end_lineno=row, end_col_offset=indent)
            yield Finding(module, place, because, (), Safety.REPORT, Severity.NOTE, UNUSED_NOQA)


def is_ddpfix_code(code: str) -> bool:
    """Whether a code has the form of ddpfix's codes."""
    return re.fullmatch(r"DF[0-9]+", code) is not None
