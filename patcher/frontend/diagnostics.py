"""Findings as plain data, for output, for the cache and for sending between processes."""

from __future__ import annotations

import os
from functools import cache

from ...record import record
from ..findings import Finding
from .remedies import REPAIRS, Remedies


@record
class Diagnostic:
    """One finding, without the tree it was found in."""

    path: str
    line: int  # 1-based
    column: int  # 1-based, in characters
    end_line: int
    end_column: int  # behind the last character
    code: str
    severity: str  # E, W or N
    safety: str  # of its edits: safe, unsafe, or report where there are none
    because: str
    text: str  # the source line, with its indentation
    title: str
    consequence: str
    remedy: str
    is_repaired: bool = True  # where it has edits: whether patch carries them out

    @property
    def where(self) -> str:
        """``path:line:column``."""
        return f"{self.path}:{self.line}:{self.column}"

    @property
    def is_note(self) -> bool:
        """Whether it does not affect the exit status."""
        return self.severity == "N"

    @property
    def is_fixable(self) -> bool:
        """Whether ``patch`` has an edit for it."""
        return self.safety != "report"


@record
class FileError:
    """Why a file cannot be checked: its path, and ``text``, ``:line: message`` or ``: message``."""

    path: str
    text: str

    @property
    def line(self) -> int | None:
        """The line it is about, where it is about one."""
        number = self.text[1:].partition(":")[0]
        return int(number) if number.isdecimal() else None

    def __str__(self) -> str:
        return f"{self.path}{self.text}"


def printable(path: str) -> str:
    """A path as valid Unicode: bytes of names that are no UTF-8 become their numbers."""
    return path.encode(errors="backslashreplace").decode()


def diagnose(finding: Finding, path: str | None = None, remedies: Remedies = REPAIRS) -> Diagnostic:
    """Turn a finding into data; ``path`` replaces the name of its file."""
    assert finding.severity is not None
    assert finding.safety is not None
    number, start = finding.at.lineno, finding.at.col_offset
    line = finding.module.lines[number - 1]
    before = line[:start].decode(errors="ignore")
    end_line, end = end_of(finding)
    last = finding.module.lines[end_line - 1][:end].decode(errors="ignore")
    title, consequence, fix = manual_of(finding.code)
    safety = finding.safety.value
    remedy, is_repaired = remedies.get(safety, (fix, False))
    return Diagnostic(
        finding.module.source.name if path is None else path,
        number,
        len(before) + 1,
        end_line,
        len(last) + 1,
        finding.code,
        finding.severity.value,
        safety,
        finding.because,
        line.decode().rstrip(),
        title,
        consequence,
        remedy,
        is_repaired,
    )


def end_of(finding: Finding) -> tuple[int, int]:
    """Line and byte where what is found ends; of a statement with a body, its first line's end."""
    node = finding.at
    if hasattr(node, "body") and isinstance(node.body, list):
        return node.lineno, len(finding.module.lines[node.lineno - 1].rstrip())
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def own_mistake(error: Exception) -> str:
    """What to print behind a file's name where ddpfix itself failed on it."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    place = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "?"
    text = " ".join(str(error).split())
    return (
        f": ddpfix failed on it ({type(error).__name__} in {place}: {text}), the other files are "
        "done; please report it with the file"
    )


@cache
def manual_of(code: str) -> tuple[str, str, str]:
    """Title, "At run time" and "Fix" from a rule's manual."""
    from ..rules import all_rules  # not needed where every result is cached

    rule = next(rule for rule in all_rules() if rule.code == code)
    return rule.title, rule.section("At run time"), rule.section("Fix")
