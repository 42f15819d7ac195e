"""Compare the output files of two runs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median

ROUNDING_TOLERANCE = 1.01e-4
"""Difference allowed between losses logged with four decimals: one unit in the last."""
FLOAT32_TOLERANCE = 1e-5, 1e-6
"""Relative and absolute difference allowed between raw floats: kernels sum in another order."""
_SCORES = re.compile(r"result|score|metric", re.IGNORECASE)
_DECIMAL = re.compile(r"\d+\.\d+")
FLOAT = re.compile(r"-?\d+\.\d+(?:[eE][-+]?\d+)?")
_RAW_DIGITS = 6  # of a number that nobody has rounded, after the point
_STAMP = re.compile(rb"\d{4}-\d\d-\d\d|\d\d/\d\d/\d{4}|\d\d:\d\d:\d\d(?:[.,]\d+)?")
_LOG = re.compile(r"\.log$|log|config|args|setting|events\.out\.", re.IGNORECASE)


def different_files(first: Path, second: Path, *, text_only: bool) -> list[str]:
    """Files that are in only one of two folders, or differ in more than dates and times.

    ``text_only`` compares predictions: no binary files, logs or settings; scores in a file name or
    in a file of scores may then differ by rounding, raw floats by float32's. TensorBoard event
    files are left out, as host, time and process are in their names and contents.
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
        if not is_same_file(first / name, second / other, rounded=text_only)
    )


def is_same_file(path: Path, other: Path, *, rounded: bool) -> bool:
    """Whether two files hold the same, ``rounded`` numbers apart; so do two that are not there."""
    data, other_data = comparable_content(path), comparable_content(other)
    if data is None or other_data is None or not rounded or data == other_data:
        return data == other_data
    text, other_text = data.decode(), other_data.decode("utf-8", "replace")
    if _SCORES.search(path.name) and _is_rounded(text, other_text):
        return True
    return _is_same_but_for_raw_floats(text, other_text)


def _is_same_but_for_raw_floats(text: str, other: str) -> bool:
    """Whether two texts differ only in the last digits of floats that were written as they are.

    A score next to zero is the rest of terms as large as other scores, and as exact as those.
    """
    if FLOAT.sub("", text) != FLOAT.sub("", other):
        return False
    pairs = [*zip(FLOAT.findall(text), FLOAT.findall(other), strict=True)]
    raw = [abs(float(a)) for a, b in pairs if _is_raw(a, b)]
    if any(a != b and not _is_raw(a, b) for a, b in pairs):
        return False
    relative, absolute = FLOAT32_TOLERANCE
    absolute = max(absolute, relative * median(raw or [0.0]))
    return all(
        a == b or math.isclose(float(a), float(b), rel_tol=relative, abs_tol=absolute)
        for a, b in pairs
    )


def _is_raw(number: str, other: str) -> bool:
    """Whether nobody has rounded two numbers."""
    return min(_digits(number), _digits(other)) >= _RAW_DIGITS


def _digits(number: str) -> int:
    """How many digits a number has behind its point, an exponent counted."""
    fraction, _, exponent = number.lower().partition(".")[2].partition("e")
    return len(fraction) - int(exponent or 0)


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
