"""The difference of two texts as replacements of whole lines, as editors and other tools apply."""

from __future__ import annotations

import difflib
import re

from ...record import record


@record
class TextEdit:
    """New text for a range; lines and columns are 1-based, columns count characters."""

    line: int
    column: int
    end_line: int
    end_column: int
    content: str


def text_edits(before: str, after: str) -> tuple[TextEdit, ...]:
    """Edits that make ``after`` of ``before``, from top to bottom; they touch no line twice."""
    old, new = lines_of(before), lines_of(after)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return tuple(
        TextEdit(*place(old, start), *place(old, end), "".join(new[new_start:new_end]))
        for kind, start, end, new_start, new_end in matcher.get_opcodes()
        if kind != "equal"
    )


def place(lines: list[str], index: int) -> tuple[int, int]:
    """Line and column where a line begins; behind the last one, where the text ends."""
    if index < len(lines) or not lines or lines[-1].endswith(("\n", "\r")):
        return index + 1, 1
    return index, len(lines[-1]) + 1


def lines_of(text: str) -> list[str]:
    """The lines with their ends, as Python counts them: a form feed ends none."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)
