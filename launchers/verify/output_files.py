"""Files of two runs, held against each other."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

ROUNDING = 1.01e-4
"""How far two losses may be apart that are logged with four decimals: one in the last."""
_SCORES = re.compile(r"result|score|metric", re.IGNORECASE)
_DECIMAL = re.compile(r"\d+\.\d+")
_STAMP = re.compile(rb"\d{4}-\d\d-\d\d|\d\d/\d\d/\d{4}|\d\d:\d\d:\d\d(?:[.,]\d+)?")
_LOG = re.compile(r"\.log$|log|config|args|events\.out\.", re.IGNORECASE)


def different_files(first: Path, second: Path, *, text_only: bool) -> list[str]:
    """Files below two folders that are not in both, or differ in more than dates and times.

    ``text_only``: what a run predicts, so neither binary files nor logs and settings; scores, in a
    name or in a file of them, may then differ by rounding. Event files of TensorBoard bear host,
    time and process in name and content and are left out.
    """
    listed = texts_of if text_only else files_of
    names, theirs = set(listed(first)), set(listed(second))
    pairs = {name: name for name in names | theirs}
    for name in names - theirs if text_only else ():
        for other in theirs - names:
            if _is_rounded(name, other):
                pairs[name] = other
                pairs.pop(other, None)
    return sorted(
        name
        for name, other in pairs.items()
        if not _is_same(first / name, second / other, rounded=text_only)
    )


def _is_same(path: Path, other: Path, *, rounded: bool) -> bool:
    ours, theirs = content(path), content(other)
    if ours is None or theirs is None or not (rounded and _SCORES.search(path.name)):
        return ours == theirs
    return _is_rounded(ours.decode(), theirs.decode("utf-8", "replace"))


def _is_rounded(text: str, other: str) -> bool:
    """``checkpoint-8-394.9073/vocab.txt`` and ``checkpoint-8-394.9075/vocab.txt``."""
    if _DECIMAL.sub("", text) != _DECIMAL.sub("", other):
        return False
    numbers = zip(_DECIMAL.findall(text), _DECIMAL.findall(other), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=ROUNDING) for a, b in numbers)


def content(path: Path) -> bytes | None:
    if not path.is_file():
        return None
    data = path.read_bytes()
    return data if _is_binary(data) else _STAMP.sub(b"", data)


def files_of(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "events.out.tfevents" not in path.name:
            yield path.relative_to(folder).as_posix()


def texts_of(folder: Path) -> list[str]:
    return [
        name
        for name in files_of(folder)
        if not _LOG.search(Path(name).name) and not _is_binary((folder / name).read_bytes())
    ]


def _is_binary(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return True
    return b"\0" in data[:8192]
