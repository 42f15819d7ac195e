"""Unified diffs that ``git apply`` and ``patch`` accept."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path

LINES = re.compile(r"[^\n]*\n|[^\n]+\Z")
NO_END = "\n\\ No newline at end of file\n"


def unified_diff(path: str, before: str, after: str) -> str:
    """The diff of a file, whose path is relative where it lies below the current folder."""
    lines = difflib.unified_diff(
        LINES.findall(before), LINES.findall(after), f"a/{shown(path)}", f"b/{shown(path)}"
    )
    return "".join(line if line.endswith("\n") else line + NO_END for line in lines)


def shown(path: str) -> str:
    """A path relative to the current folder, or to the root where it lies outside."""
    file = Path(path)
    absolute = Path(os.path.realpath(file.parent), file.name)
    here = Path.cwd()
    base = here if absolute.is_relative_to(here) else Path(absolute.anchor)
    return str(absolute.relative_to(base))
