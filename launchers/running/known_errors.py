"""Tell what a known message of torch, CUDA, argparse and the like means, and what mends it.

The messages stand in known_errors.toml, each with its source.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from ..state_types import structure

TABLE = Path(__file__).with_name("known_errors.toml")
_PREFIX = re.compile(r"^(?:\[(?:rank|default)(\d+)\]: ?)+")
_TRACEBACK = re.compile(r'^\s+File "|^Traceback \(most recent call last\)')
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)\b(?=: |$)")


@attrs.frozen
class KnownError:
    """A message, where it comes from, what causes it here, and what mends it.

    A line is this message if all of `words` stand in it. `codes` are rules whose manual says more.
    `ends_run` is not so of warnings.
    """

    name: str
    words: list[str]
    example: str
    source: str
    cause: str
    remedy: str
    codes: list[str] = attrs.field(factory=list)
    ends_run: bool = True

    @property
    def advice(self) -> list[str]:
        """Cause, remedy and manuals, a line each."""
        lines = [f"cause: {self.cause}", f"what mends it: {self.remedy}"]
        if self.codes:
            lines.append("more: " + ", ".join(f"ddpfix explain {code}" for code in self.codes))
        return lines


@attrs.frozen
class Sighting:
    """A known message in a log: where it first stands, that line, and how often it stands there.

    `error` is None for an exception that is not known.
    """

    line: int
    text: str
    error: KnownError | None
    count: int = 1


@functools.cache
def known_errors() -> tuple[KnownError, ...]:
    """All known messages; the first one that fits a line is the one that it is."""
    listed = tomllib.loads(TABLE.read_text("utf-8"))["error"]
    return tuple(structure(entry, KnownError) for entry in listed)


def recognize(line: str) -> KnownError | None:
    """The known message that a line is, if it is one."""
    for error in known_errors():
        if all(word in line for word in error.words):
            return error
    return None


def sightings(lines: Iterable[str]) -> list[Sighting]:
    """Each known message of a log once, in the order of the log, and the unknown exceptions.

    An exception's type begins its line; what only names one in passing is not taken for it.
    """
    found: dict[str, Sighting] = {}
    for number, line in _candidates(lines):
        error = recognize(line)
        if error is None and not _EXCEPTION.match(line):
            continue
        key = error.name if error else line
        before = found.get(key)
        if before is None:
            found[key] = Sighting(number, line, error)
        else:
            found[key] = attrs.evolve(before, count=before.count + 1)
    return list(found.values())


def _candidates(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """The lines that may be a message: their number, and the line without its rank."""
    for number, whole in enumerate(lines, 1):
        line = _PREFIX.sub("", whole.rstrip("\r\n").rpartition("\r")[2])
        if line and not _TRACEBACK.match(line):
            yield number, line.strip()
