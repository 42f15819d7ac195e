"""Read the record of a run, with validation: only its head, where that is enough.

A list of thousands of runs shows of each record what stands in its first kilobyte.
"""

from __future__ import annotations

import os
from pathlib import Path

import attrs

from .. import state_files
from ..state_types import structure
from ..state_validators import not_negative, positive
from .machine import ProcessPlace

_HEAD_BYTES = 4096
_HEAD_END = '\n  "argv": '
"""What comes behind the head: a line of JSON begins so at the top level alone."""


@attrs.frozen
class Launcher:
    """The process that looks after a run. `started` is in clock ticks since the machine's boot."""

    pid: int = attrs.field(validator=positive)
    started: int | None = None
    host: str | None = None
    boot: str | None = None
    pid_namespace: str | None = None

    @property
    def place(self) -> ProcessPlace:
        """Where its process id means it."""
        return ProcessPlace(self.host, self.boot, self.pid_namespace)


@attrs.frozen
class Progress:
    """How many attempts a run had, and how far the last one came."""

    attempts: int = attrs.field(default=0, validator=not_negative)
    step: int | None = attrs.field(default=None, validator=not_negative)
    steps: int | None = attrs.field(default=None, validator=not_negative)
    loss: float | None = None


@attrs.frozen
class StoredRun:
    """What is read of a record. `progress` is None before the first attempt has ended."""

    cause: str
    exit_status: int | None
    start: str | None = None
    end: str | None = None
    launcher: Launcher | None = None
    progress: Progress | None = None


@attrs.frozen
class StoredAttempt:
    """How long the progress bars of an attempt took: their length -> (steps done, seconds)."""

    units: dict[str, list[float]]


@attrs.frozen
class StoredAttempts:
    """The attempts of a run."""

    attempts: list[StoredAttempt]


def read_run(path: str) -> StoredRun:
    """Read the record at `path`.

    Raises:
        FileNotFoundError: there is none.
        InputError: it cannot be used.

    """
    file = Path(path)
    head = state_files.unusable_if_wrong(file, lambda: _read_head(path))
    if head is None:
        return state_files.read(file, StoredRun)
    return head


def _read_head(path: str) -> StoredRun | None:
    """What the head of a record says; None where it has none."""
    # Not to wait for a pipe; what is no file has no such head.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        text = os.read(descriptor, _HEAD_BYTES).decode("utf-8", "replace")
    finally:
        os.close(descriptor)
    head, end, _ = text.partition(_HEAD_END)
    if not end or '\n  "progress": ' not in head:
        return None
    return structure(state_files.parse(head.rstrip(", ") + "}"), StoredRun)
