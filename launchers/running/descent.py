"""Find the descendants of a process, adopt those whose parents died, and end them (Linux)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

# linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37

_POLL = 0.05  # seconds between looks


class ProcessState(NamedTuple):
    """A process by its parent's id, its session, and whether it has ended and waits for that."""

    parent: int
    session: int
    ended: bool


def set_child_subreaper(on: bool) -> bool:
    """Whether this process becomes the parent of its descendants' orphans; what it was before.

    Otherwise they go to the next ancestor that asked for it, in the end to init (prctl(2)). A
    system without it, or another than Linux, leaves all as it is.
    """
    if not sys.platform.startswith("linux"):
        return False
    prctl = ctypes.CDLL(None).prctl
    before = ctypes.c_int()
    prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    prctl(_PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)
    return bool(before.value)


def process_table() -> dict[int, ProcessState]:
    """All processes that can be seen; empty on a system without /proc."""
    pids = (int(entry.name) for entry in Path("/proc").glob("[0-9]*"))
    return {pid: state for pid in pids if (state := _read_state(pid))}


def parent_of(pid: int) -> int:
    """The id of a process's parent; 0 if it has none or has gone."""
    state = _read_state(pid)
    return state.parent if state else 0


def descendants(root: int, table: dict[int, ProcessState] | None = None) -> list[int]:
    """The living processes below `root`: its children, theirs, and so on."""
    table = process_table() if table is None else table
    children: dict[int, list[int]] = {}
    for pid, state in table.items():
        children.setdefault(state.parent, []).append(pid)
    found, heads = [], [root]
    while heads:
        below = children.pop(heads.pop(), ())
        heads += below
        found += [pid for pid in below if not table[pid].ended]
    return found


def send(pids: Iterable[int], number: int) -> None:
    """Signal those of the processes that still exist and belong to this user."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def can_signal(pid: int) -> bool:
    """Whether a process exists and this user may signal it."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def end_all(members: Callable[[], list[int]], grace: float) -> int:
    """End all `members`, by SIGTERM and after `grace` seconds by SIGKILL; how many there were.

    A stopped one is continued, so that it can end by itself. Two looks in a row have to find
    nobody: during one, a process may pass from its dying parent to the next one unseen.
    """
    known = set(members())
    send(known, signal.SIGTERM)
    send(known, signal.SIGCONT)
    deadline = time.monotonic() + grace
    empty_looks = 0
    while empty_looks < 2:
        present = members()
        empty_looks = 0 if present else empty_looks + 1
        known.update(present)
        if time.monotonic() > deadline:
            send(present, signal.SIGKILL)  # in every look, as one may have forked meanwhile
        if present:
            time.sleep(_POLL)
    return len(known)


def _read_state(pid: int) -> ProcessState | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return ProcessState(int(fields[1]), int(fields[3]), fields[0] in (b"Z", b"X"))
