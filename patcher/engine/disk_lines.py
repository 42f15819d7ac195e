"""Name places of an edited text by the lines of the file as it lies on the disk."""

from __future__ import annotations

import ast
import re
from difflib import SequenceMatcher

from ...record import replace
from ..analysis.training.program import Program
from ..findings import Finding
from ..source.module import Module

LINE = re.compile(r"\b(lines? )(\d+)\b(?= of (\S+\.py)\b|)")
NOT_SHARED = "; not shared among ranks, as "  # what stands behind it names lines on the disk


def line_on_disk(original: Module, edited: Module, number: int) -> int:
    """The (1-based) line of the original that an edited line comes from, or was added below."""
    if original.source.text == edited.source.text:
        return number
    before, after = original.lines, edited.lines
    for _, first, last, start, end in SequenceMatcher(None, before, after, False).get_opcodes():
        if start < number <= end:
            return min(first + number - start, max(last, 1))
    return min(number, max(len(before), 1))


def original_of(program: Program, edited: Module) -> Module:
    """The module of the original program with the same file."""
    return next(m for m in program.modules if m.source.name == edited.source.name)


def text_on_disk(program: Program, edited: Module, text: str) -> str:
    """A message with ``line 7`` of the edited text as the line on the disk.

    So is ``line 7 of other.py``. The reason behind ``NOT_SHARED`` comes from another try, and names
    lines on the disk already.
    """
    text, mark, reason = text.partition(NOT_SHARED)

    def renumbered(match: re.Match[str]) -> str:
        words, number, file = match.groups()
        module = edited if file is None else module_by_file(edited, file)
        if module is not None:
            number = line_on_disk(original_of(program, module), module, int(number))
        return f"{words}{number}"

    return LINE.sub(renumbered, text) + mark + reason


def module_by_file(edited: Module, file: str) -> Module | None:
    """The module of a program that a message names by its file; None unless there is one."""
    modules = () if edited.graph is None else edited.graph.modules
    found = [each for each in modules if file in (each.source.name, each.source.file)]
    return found[0] if len(found) == 1 else None


def place_on_disk(program: Program, finding: Finding) -> str:
    """``DF301 line 9 (because): source line``, as the file lies on the disk."""
    edited, original = finding.module, original_of(program, finding.module)
    number = line_on_disk(original, edited, finding.line)
    because = text_on_disk(program, edited, finding.because)
    file = "" if original is program.script else f" of {original.source.file}"
    source = original.line(number).strip() if number <= len(original.lines) else ""
    return f"{finding.code} line {number}{file} ({because}): {source}"


def finding_on_disk(program: Program, finding: Finding) -> Finding:
    """A finding of an edited program as one at the original's line."""
    edited, original = finding.module, original_of(program, finding.module)
    if edited.source.text == original.source.text:
        return finding
    number = line_on_disk(original, edited, finding.line)
    line = original.lines[number - 1] if number <= len(original.lines) else b""
    column = min(finding.at.col_offset, len(line.rstrip()))
    place = ast.Pass(lineno=number, col_offset=column, end_lineno=number, end_col_offset=column)
    because = text_on_disk(program, edited, finding.because)
    return replace(finding, module=original, at=place, because=because)
