"""Which rank a process of a run is, or belongs to, by the environment it was started with."""

from __future__ import annotations

from pathlib import Path

import attrs


@attrs.frozen
class Rank:
    """Its number among all, and among those of its machine."""

    rank: int
    local: int


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
