"""Compare the output files of two runs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

ROUNDING_TOLERANCE = 1.01e-4
"""Difference allowed between losses logged with four decimals: one unit in the last."""
_SCORES = re.compile(r"result|score|metric", re.IGNORECASE)
_DECIMAL = re.compile(r"\d+\.\d+")
_STAMP = re.compile(rb"\d{4}-\d\d-\d\d|\d\d/\d\d/\d{4}|\d\d:\d\d:\d\d(?:[.,]\d+)?")
_LOG = re.compile(r"\.log$|log|config|args|events\.out\.", re.IGNORECASE)


def different_files(first: Path, second: Path, *, text_only: bool) -> list[str]:
    """Files that are in only one of two folders, or differ in more than dates and times.

    ``text_only`` compares predictions: no binary files, logs or settings; scores in a file name or
    in a file of scores may then differ by rounding. TensorBoard event files are left out, as host,
    time and process are in their names and contents.
    """
    list_names = list_text_files if text_only else list_files
    names, other_names = set(list_names(first)), set(list_names(second))
    pairs = {name: name for name in names | other_names}
    for name in names - other_names if text_only else ():
        for other in other_names - names:
            if _is_rounded(name, other):
                pairs[name] = other
                pairs.pop(other, None)
    return sorted(
        name
        for name, other in pairs.items()
        if not _is_same(first / name, second / other, rounded=text_only)
    )


def _is_same(path: Path, other: Path, *, rounded: bool) -> bool:
    data, other_data = comparable_content(path), comparable_content(other)
    if data is None or other_data is None or not (rounded and _SCORES.search(path.name)):
        return data == other_data
    return _is_rounded(data.decode(), other_data.decode("utf-8", "replace"))


def _is_rounded(text: str, other: str) -> bool:
    """Whether two texts differ only by rounding of their decimal numbers.

    For example ``checkpoint-8-394.9073/vocab.txt`` and ``checkpoint-8-394.9075/vocab.txt``.
    """
    if _DECIMAL.sub("", text) != _DECIMAL.sub("", other):
        return False
    numbers = zip(_DECIMAL.findall(text), _DECIMAL.findall(other), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=ROUNDING_TOLERANCE) for a, b in numbers)


def comparable_content(path: Path) -> bytes | None:
    """A file's bytes, texts without dates and times; None where there is no file."""
    if not path.is_file():
        return None
    data = path.read_bytes()
    return data if _is_binary(data) else _STAMP.sub(b"", data)


def list_files(folder: Path) -> Iterator[str]:
    """Paths below a folder, without TensorBoard's event files."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "events.out.tfevents" not in path.name:
            yield path.relative_to(folder).as_posix()


def list_text_files(folder: Path) -> list[str]:
    """Paths of text files below a folder, without logs and settings."""
    return [
        name
        for name in list_files(folder)
        if not _LOG.search(Path(name).name) and not _is_binary((folder / name).read_bytes())
    ]


def _is_binary(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return True
    return b"\0" in data[:8192]
