"""``# noqa`` comments: which findings they silence, and which of them silence nothing.

``# noqa`` alone silences everything on its line, ``# noqa: DF101, DF5`` the codes that start so.
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
NOQA = re.compile(rf"#\s*noqa(?:\s*:\s*(?P<codes>{CODES})|(?!\s*:|\w))", re.IGNORECASE)
OWN = re.compile(r"DF[0-9]+")
UNUSED = "DF100"  # the rule that reports them


class Noqa:
    """A comment, its codes (None for all), and those of them that silenced a finding."""

    def __init__(self, comment: Comment, codes: tuple[str, ...] | None) -> None:
        self.comment = comment
        self.codes = codes
        self.used: set[str] = set()

    def silences(self, finding: Finding) -> bool:
        """Whether it counts for this finding; remembers what for."""
        if finding.line not in self.comment.lines:
            return False
        if self.codes is None:
            return True
        fitting = {code for code in self.codes if finding.code.startswith(code)}
        self.used |= fitting
        return bool(fitting)


def noqas(module: Module) -> list[Noqa]:
    """All noqa comments of a file."""
    return [Noqa(comment, codes or None) for comment, codes in _told(module)]


@cached_per_module
def _told(module: Module) -> list[tuple[Comment, tuple[str, ...]]]:
    text = module.source.text
    if "noqa" not in text.lower():
        return []
    every = [(comment, codes_in(comment.text)) for comment in comments(text)]
    return [(comment, codes) for comment, codes in every if codes is not None]


def codes_in(text: str) -> tuple[str, ...] | None:
    """The codes of a noqa comment, () for all of them; None of a comment that is no such one."""
    match = NOQA.search(text)
    return match and tuple(re.findall(r"[A-Z]+[0-9]+", (match["codes"] or "").upper()))


def audible(findings: Iterable[Finding], table: dict[Module, list[Noqa]]) -> list[Finding]:
    """Findings that no comment silences; the comments remember those that they silence."""
    return [
        finding
        for finding in findings
        # Every comment is asked, for each is to remember what it is needed for.
        if not any([noqa.silences(finding) for noqa in table[finding.module]])  # noqa: C419
    ]


def unused(module: Module, comments: list[Noqa], ran: set[str]) -> Iterator[Finding]:
    """Codes of ddpfix in a file's comments that silenced nothing though their rules ``ran``."""
    every = all_codes() if comments else []
    for noqa in comments:
        for code in noqa.codes or ():
            if not is_own(code) or code in noqa.used:
                continue
            fitting = {known for known in every if known.startswith(code)}
            if not fitting:
                because = f"there is no rule {code}"
            elif fitting <= ran:
                because = f"{code} finds nothing here"
            else:
                continue
            row, column = noqa.comment.row, noqa.comment.column
            indent = len(module.line(row)[:column].encode())
            place = ast.Pass(lineno=row, col_offset=indent, end_lineno=row, end_col_offset=indent)
            yield Finding(module, place, because, (), Safety.REPORT, Severity.NOTE, UNUSED)


def is_own(code: str) -> bool:
    """Whether a code is one of ddpfix, or looks like it."""
    return OWN.fullmatch(code) is not None
