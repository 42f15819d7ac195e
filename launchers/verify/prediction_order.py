"""Tell prediction files that would look the same in any order of their lines."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any


def hidden_order(path: Path, sizes: Collection[int]) -> str:
    """What a file predicts for every example, so that a wrong order would not show; "" if it would.

    ``sizes`` are the numbers of examples in evaluations, by which other prediction files than
    those of that name are told.
    """
    label = only_label(path) if "pred" in path.name else None
    if label is not None:
        return repr(label)
    return "the same text" if predicts_one_thing(path, sizes) else ""


def only_label(path: Path) -> str | None:
    """The label that ends every line of a prediction file; None where labels differ."""
    labels = {line.split()[-1] for line in _lines(path)}
    return labels.pop() if len(labels) == 1 and len(_lines(path)) > 1 else None


def predicts_one_thing(path: Path, sizes: Collection[int]) -> bool:
    """Whether a file has a line for each of as many examples, all the same but for their names."""
    lines = _lines(path)
    if len(lines) < 2 or len(lines) not in sizes:
        return False
    if len(set(lines)) == 1:
        return True
    rows = _rows(lines)
    columns = [[row[key] for row in rows] for key in range(len(rows[0]))] if rows else []
    rest = [column for column in columns if len(set(column)) < len(column)]
    return len(columns) > len(rest) > 0 and all(len(set(column)) == 1 for column in rest)


def _rows(lines: Sequence[str]) -> list[list[str]]:
    """The fields of lines of JSON, or of an example's name and a text; [] where they differ."""
    try:
        records: list[Any] = [json.loads(line) for line in lines]
    except (ValueError, RecursionError):
        records = []
    if records and all(isinstance(record, dict) for record in records):
        rows = [[json.dumps(record[key]) for key in sorted(record)] for record in records]
    else:
        rows = [line.split("\t" if "\t" in line else None, 1) for line in lines]
        if "\t" not in lines[0] and len({row[0] for row in rows}) < len(rows):
            return []  # text or code, whose first word names no example
    return rows if len({len(row) for row in rows}) == 1 else []


def _lines(path: Path) -> list[str]:
    """The lines of a text file that hold something; none where it cannot be read as text."""
    try:
        return [line for line in path.read_text("utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError):
        return []
