"""Which rank a process of a run is, or belongs to, by the environment it was started with."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import attrs

_EVERY = 0.1  # seconds between two looks


@attrs.frozen
class Rank:
    """Its number among all, and among those of its machine."""

    rank: int
    local: int


class Ranks:
    """Knows the rank of a process, also of one that has ended, if it was seen while it lived."""

    def __init__(self) -> None:
        self._seen: dict[int, Rank | None] = {}
        self._last = 0.0

    def of(self, pid: int) -> Rank | None:
        """The rank of a process that has written something; None for one that is none."""
        if pid not in self._seen:
            self._seen[pid] = rank_of(pid)
        return self._seen[pid]

    def look(self, starter: int) -> None:
        """See what `starter` has started since: a rank may write nothing until it ends."""
        now = time.monotonic()
        if now < self._last + _EVERY:
            return
        self._last = now
        for pid in _children(starter):
            # One that has just been forked is not yet told its rank.
            if pid not in self._seen and (rank := rank_of(pid)):
                self._seen[pid] = rank


def rank_of(pid: int) -> Rank | None:
    """The rank of a process; None for one that is none, is another user's, or has ended.

    A rank's own children, such as the workers of its loaders, inherit what says it.
    """
    try:
        return rank_told(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return None


def rank_told(variables: list[bytes]) -> Rank | None:
    """The rank that an environment tells, as torch's launchers have it."""
    told = dict(variable.split(b"=", 1) for variable in variables if b"=" in variable)
    rank, local = told.get(b"RANK", b""), told.get(b"LOCAL_RANK", b"0")
    return Rank(int(rank), int(local)) if rank.isdigit() and local.isdigit() else None


def _children(pid: int) -> Iterator[int]:
    """Of all its threads; none where the kernel does not tell (CONFIG_PROC_CHILDREN)."""
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            yield from map(int, path.read_bytes().split())
