"""``# noqa`` comments: which findings they silence, and which of them silence nothing.

``# noqa`` alone silences everything on its line, ``# noqa: DF101, DF5`` the codes that start so.
A comment at the end of a statement of several lines counts for all of them.
"""

from __future__ import annotations

from .findings import Finding, Safety, Severity
from .light import Iterable, Iterator
from .module import kept
from .selection import all_codes
from .trees import ast

TYPE_CHECKING = False  # typing takes long to import
if TYPE_CHECKING:
    from .module import Module
    from .remarks import Comment

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
DIGITS = "0123456789"
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


@kept
def _told(module: Module) -> list[tuple[Comment, tuple[str, ...]]]:
    text = module.source.text
    # To look for two letters four times is sooner done than to copy the text in lower case.
    if not any(part in text for part in ("qa", "QA", "Qa", "qA")) or "noqa" not in text.lower():
        return []
    from .remarks import comments_with  # few files have such a comment

    every = [(comment, codes_in(comment.text)) for comment in comments_with(module, "noqa")]
    return [(comment, codes) for comment, codes in every if codes is not None]


def codes_in(text: str) -> tuple[str, ...] | None:
    """The codes of a noqa comment, () for all of them; None of a comment that is no such one.

    Told without re, which takes as long to import as a tenth of a check of a script.
    """
    for part in text.split("#")[1:]:
        words = part.lstrip()
        if words[:4].lower() != "noqa":
            continue
        behind = words[4:].lstrip()
        if behind.startswith(":"):
            codes = listed(behind[1:].lstrip())
            if codes:
                return codes
        elif not (words[4:5].isalnum() or words[4:5] == "_"):
            return ()
    return None


def listed(text: str) -> tuple[str, ...]:
    """The codes that a text begins with, apart by commas or blanks."""
    codes: list[str] = []
    for word in text.upper().replace(",", " ").split() if text[:1] != "," else ():
        digits = word.lstrip(LETTERS)
        rest = digits.lstrip(DIGITS)
        if digits in (word, rest):  # no letters, or no digits behind them
            break
        codes.append(word.removesuffix(rest))
        if rest:
            break
    return tuple(codes)


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
    return code.startswith("DF") and not code[2:].lstrip(DIGITS) and len(code) > 2
