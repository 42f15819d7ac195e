"""Tell logs of training apart from what an evaluation has predicted or scored.

A training loss that a script logs is that of rank 0's share of each batch, as is usual with
DistributedDataParallel: another number than one process has, and no fault of an evaluation.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection
from enum import Enum

from .output_files import FLOAT, FLOAT32_TOLERANCE

_WORD = re.compile(r"[^\W\d]\w*")
_TRAINING = re.compile(r"train", re.IGNORECASE)


class NumbersApart(Enum):
    """What numbers in which two files differ are of."""

    TRAINING = "training"  # by their names
    UNKNOWN = "unknown"
    EXAMPLES = "examples"  # there is a number for each example, or more than numbers differs


def numbers_apart(text: str, other: str, sizes: Collection[int]) -> NumbersApart:
    """What the floats are of in which two texts differ, in a script that evaluates.

    ``sizes`` are the numbers of examples in its evaluations: a file with as many numbers may hold
    one for each example.
    """
    if FLOAT.sub("", text) != FLOAT.sub("", other):
        return NumbersApart.EXAMPLES
    numbers, others = list(FLOAT.finditer(text)), FLOAT.findall(other)
    relative, absolute = FLOAT32_TOLERANCE
    different = [
        number
        for number, value in zip(numbers, others, strict=True)
        if abs(float(number[0]) - float(value)) > absolute + relative * abs(float(value))
    ]
    labels = [label_of(text, number.start()) for number in different]
    if all(_TRAINING.search(label) for label in labels):
        return NumbersApart.TRAINING
    if len(numbers) >= min(sizes, default=0):
        return NumbersApart.EXAMPLES
    return NumbersApart.UNKNOWN


def label_of(text: str, position: int) -> str:
    """The name of a number in a text: its column in a table, or the word before it."""
    before, start = text[:position], text.rfind("\n", 0, position) + 1
    own, line = text[start:position], text[start:].partition("\n")[0]
    header = text.partition("\n")[0]
    if words := _WORD.findall(own):
        return str(words[-1])
    for mark in (",", "\t", ";"):
        if mark in line and header.count(mark) == line.count(mark) and _WORD.search(header):
            return next(csv.reader([header], delimiter=mark))[own.count(mark)]
    words = _WORD.findall(before)
    return str(words[-1]) if words else ""
