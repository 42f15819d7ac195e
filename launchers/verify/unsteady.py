"""What one program writes otherwise each time it runs, such as the seconds that it took.

No patch is to blame for these, and nothing of them can be compared.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from attrs import frozen

from . import trace_compare as compare
from .output_files import different_files, list_files

_DIGITS = re.compile(r"\d+")
LoggedMetrics = Sequence[tuple[str, float]]


@frozen
class Unsteady:
    """Names of files, and of logged values, that two runs of one script do not have in common.

    Of a file whose name itself is new each time, as that of a folder named for the time of day, the
    numbers are masked.
    """

    files: frozenset[str] = frozenset()
    metrics: frozenset[str] = frozenset()

    def has_file(self, name: str) -> bool:
        """Whether nothing follows from a file's difference."""
        return name in self.files or _mask_numbers(name) in self.files

    def steady_files(self, names: Iterable[str]) -> list[str]:
        """The names of files that say something."""
        return [name for name in names if not self.has_file(name)]

    def steady_metrics(self, metrics: LoggedMetrics) -> list[tuple[str, float]]:
        """The logged values that say something."""
        return [(key, value) for key, value in metrics if key not in self.metrics]


STEADY = Unsteady()
"""Where everything can be compared."""


def find_unsteady(
    folders: tuple[Path, Path], metrics: tuple[LoggedMetrics, LoggedMetrics]
) -> Unsteady:
    """What differs between two runs of one script: their output folders, and what they logged."""
    one, other = folders
    common = {*list_files(one)} & {*list_files(other)}
    files = {
        name if name in common else _mask_numbers(name)
        for name in different_files(one, other, text_only=False)
    }
    keys = {
        each[0]
        for pair in itertools.zip_longest(*metrics)
        if not compare.is_same(*pair)
        for each in pair
        if each is not None
    }
    return Unsteady(frozenset(files), frozenset(keys))


def _mask_numbers(name: str) -> str:
    return _DIGITS.sub("#", name)
