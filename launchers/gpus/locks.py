"""Lock cards, so that no two runs of this user take the same one.

A lock is a file in the state folder, named by the card's UUID and locked by flock(2). All processes
that have its descriptor hold it, and the system releases it when the last of them has ended,
however it ended. What the file says is for people.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ...record import record, replace
from ..state import state_folder

if TYPE_CHECKING:
    from .model import Gpu, Inventory

TAKEN = "taken"
"""What the reason begins with why a card that another run holds cannot be used."""

_SUFFIX = ".lock"
_LOOKS = 20
_PAUSE = 0.01  # seconds; somebody who only looks holds a lock shared, for less than that

_held: dict[str, int] = {}
"""The descriptors of the locks that this process holds, by the cards' UUIDs."""


@record
class LockHolder:
    """The launcher that took a lock, and the folder of its run, as far as they are known."""

    pid: int | None
    run: str

    def __str__(self) -> str:
        by = "by another run" if self.pid is None else f"by process {self.pid}"
        return f"{TAKEN} {by}" + (f", run {self.run}" if self.run else "")


def take_locks(uuids: Iterable[str]) -> bool:
    """Lock these cards, all or none; False if another process holds one of them.

    Where the state folder cannot be written to, nothing is locked, and nothing stands in the way.
    """
    taken: list[str] = []
    for uuid in sorted({*uuids} - {*_held, ""}):
        try:
            descriptor = _lock(_path(uuid))
        except OSError:
            continue
        if descriptor is None:
            release_locks(taken)
            return False
        _held[uuid] = descriptor
        taken.append(uuid)
        _describe(descriptor, "")
    return True


def name_run(run: Path) -> None:
    """Write into the locks of this process for which run they are."""
    for descriptor in _held.values():
        _describe(descriptor, str(run))


def release_locks(uuids: Iterable[str] | None = None) -> None:
    """Give up the locks of these cards, or all; another process with the descriptor keeps them."""
    for uuid in [*_held] if uuids is None else uuids:
        os.close(_held.pop(uuid))


def lock_descriptors() -> tuple[int, ...]:
    """The descriptors to pass to a process that shall hold the locks too."""
    return tuple(_held.values())


def lock_holder(uuid: str) -> LockHolder | None:
    """Who holds the lock of a card; None if nobody does, or this process itself."""
    if uuid in _held or not uuid:
        return None
    try:
        descriptor = os.open(_path(uuid), os.O_RDONLY)
    except OSError:
        return None  # never locked
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(descriptor)
    except OSError:
        return None  # of a file system without locks
    finally:
        os.close(descriptor)
    return None


def mark_taken(inventory: Inventory) -> Inventory:
    """Mark the cards unusable that other runs hold."""
    return replace(inventory, gpus=tuple(_mark(gpu) for gpu in inventory.gpus))


def _mark(gpu: Gpu) -> Gpu:
    holder = lock_holder(gpu.uuid)
    return gpu if holder is None else replace(gpu, usable=False, why_not=str(holder))


def _path(uuid: str) -> Path:
    return state_folder() / "cards" / (uuid.replace("/", "_") + _SUFFIX)


def _lock(path: Path) -> int | None:
    """The descriptor of a file that is locked now; None if another process has it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        for _ in range(_LOOKS):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return descriptor
            time.sleep(_PAUSE)
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _describe(descriptor: int, run: str) -> None:
    with contextlib.suppress(OSError):  # a full disk
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "run": run}).encode(), 0)


def _read(descriptor: int) -> LockHolder:
    try:
        content = json.loads(os.pread(descriptor, 1 << 13, 0))
        return LockHolder(int(content["pid"]), str(content["run"]))
    except (OSError, ValueError, KeyError, TypeError):
        return LockHolder(None, "")  # just being written
