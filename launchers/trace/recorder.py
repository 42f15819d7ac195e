"""Write a process's events so that a crash loses none, also in forked children."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from .events import SCHEMA, Child, CommandStart, Event, File

_OWN_FILES = re.compile(r"rank\d+(\.pid\d+)?\.(jsonl|hang)|rank\d+\.optimizer.*\.npz")


class Recorder:
    """Appends events to a rank's file, each with a single unbuffered write.

    A forked child records only `File` and `CommandStart`, in a file of its own.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder = folder
        self.rank = rank
        self.pid = os.getpid()
        self.is_child = False
        self.origin = time.perf_counter()
        self.last_event = time.monotonic()
        self.in_flight: list[str] = []
        self._lock = threading.RLock()
        self._local = threading.local()
        self._fd: int | None = None
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob(f"rank{rank}.*"):
            if self.owns(str(stale)):
                stale.unlink(missing_ok=True)
        self._fd = self._open(folder / f"rank{rank}.jsonl")
        os.register_at_fork(after_in_child=self._forked)

    def emit(self, event: Event) -> None:
        """Write an event as one line. Raises OSError if the trace cannot be written."""
        if self.is_child:
            if not isinstance(event, (File, CommandStart)):
                return
            if self._fd is None:
                self._begin_child()
        with self._lock, self.quiet():
            self._write(event)
        self.last_event = time.monotonic()

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Record nothing that this thread does inside: it is the tracer's own work."""
        depth = getattr(self._local, "depth", 0)
        self._local.depth = depth + 1
        try:
            yield
        finally:
            self._local.depth = depth

    @property
    def is_quiet(self) -> bool:
        """Whether the current thread is inside `quiet`."""
        return getattr(self._local, "depth", 0) > 0

    @contextlib.contextmanager
    def doing(self, operation: str) -> Iterator[None]:
        """Name the operation in progress, for the report of a hang."""
        self.in_flight.append(operation)
        try:
            yield
        finally:
            self.in_flight.pop()

    def owns(self, path: str) -> bool:
        """Whether ``path`` (absolute) is one of the tracer's own files."""
        folder, name = os.path.split(path)
        return folder == str(self.folder) and _OWN_FILES.fullmatch(name) is not None

    def _write(self, event: Event) -> None:
        assert self._fd is not None
        event.t = time.perf_counter() - self.origin
        record = {"type": event.type, **dataclasses.asdict(event)}
        os.write(self._fd, json.dumps(record, separators=(",", ":")).encode() + b"\n")

    def _open(self, path: Path) -> int:
        with self.quiet():
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)

    def _forked(self) -> None:
        # The lock may have been held by another thread of the parent; the file is the parent's.
        self._lock = threading.RLock()
        self._local = threading.local()
        if self._fd is not None:
            os.close(self._fd)
        self._fd = None
        self.is_child = True
        self.pid = os.getpid()
        self.in_flight = []

    def _begin_child(self) -> None:
        from multiprocessing import current_process

        self._fd = self._open(self.folder / f"rank{self.rank}.pid{self.pid}.jsonl")
        with self._lock, self.quiet():
            self._write(
                Child(
                    schema=SCHEMA,
                    rank=self.rank,
                    pid=self.pid,
                    ppid=os.getppid(),
                    name=current_process().name,
                )
            )
