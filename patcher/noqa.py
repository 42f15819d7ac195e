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
    from .comments import Comment
    from .module import Module

CODES = r"[A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*"
NOQA = rf"(?i)#\s*noqa(?:\s*:\s*(?P<codes>{CODES})|(?!\s*:|\w))"
OWN = r"DF[0-9]+"
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


@kept
def _may_have_some(module: Module) -> bool:
    text = module.source.text
    # To look for two letters four times is sooner done than to copy the text in lower case.
    return any(part in text for part in ("qa", "QA", "Qa", "qA")) and "noqa" in text.lower()


def noqas(module: Module) -> list[Noqa]:
    """All noqa comments of a file."""
    if not _may_have_some(module):
        return []
    import re  # few files have such a comment

    from .comments import comments

    found = []
    for comment in comments(module.source.text):
        match = re.search(NOQA, comment.text)
        if match:
            codes = match["codes"]
            parts = tuple(re.split(r"[,\s]+", codes.upper())) if codes else None
            found.append(Noqa(comment, parts))
    return found


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
    if not comments:
        return
    import re

    every = all_codes()
    for noqa in comments:
        for code in noqa.codes or ():
            if not re.fullmatch(OWN, code) or code in noqa.used:
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
