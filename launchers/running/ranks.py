"""The rank of a process of a run, by the environment that it was started with."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import attrs

_INTERVAL = 0.1  # seconds between two looks at the children


@attrs.frozen
class Rank:
    """A global rank, and its local rank."""

    rank: int
    local: int


class Ranks:
    """The ranks of processes, also of ended ones that were seen while they lived."""

    def __init__(self) -> None:
        self._seen: dict[int, Rank | None] = {}
        self._last = 0.0

    def of(self, pid: int) -> Rank | None:
        """The rank of a process that has written something; None if it is not a rank."""
        if pid not in self._seen:
            self._seen[pid] = rank_of(pid)
        return self._seen[pid]

    def look(self, starter: int) -> None:
        """Note the ranks that `starter` has started: one may write nothing until it ends."""
        now = time.monotonic()
        if now < self._last + _INTERVAL:
            return
        self._last = now
        for pid in _children(starter):
            # Between fork and exec a rank does not have its own environment yet.
            if pid not in self._seen and (rank := rank_of(pid)):
                self._seen[pid] = rank


def rank_of(pid: int) -> Rank | None:
    """The rank of a process; None if it has none, is another user's, or has ended.

    A rank's own children, such as DataLoader workers, count as that rank.
    """
    try:
        return rank_from_environment(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return None


def rank_from_environment(variables: list[bytes]) -> Rank | None:
    """The rank by the variables that torch's launchers set; None without them."""
    values = dict(variable.split(b"=", 1) for variable in variables if b"=" in variable)
    rank, local = values.get(b"RANK", b""), values.get(b"LOCAL_RANK", b"0")
    return Rank(int(rank), int(local)) if rank.isdigit() and local.isdigit() else None


def _children(pid: int) -> Iterator[int]:
    """The children of a process; none if the kernel lacks CONFIG_PROC_CHILDREN."""
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            yield from map(int, path.read_bytes().split())
