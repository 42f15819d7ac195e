"""Which machine and container this is, and whether a process that is recorded runs in it."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import attrs


@attrs.frozen
class ProcessPlace:
    """Where a process id means that process.

    `host` is the machine's name, `boot` the kernel's id of its last start, `pid_namespace` that of
    the container's process ids. None where the system tells no such thing, as outside of Linux.
    """

    host: str | None = None
    boot: str | None = None
    pid_namespace: str | None = None

    def is_here(self, here: ProcessPlace) -> bool:
        """Whether its process ids are those of `here`; unknown places count as here."""
        return (self.boot, self.pid_namespace) == (here.boot, here.pid_namespace) or not self.boot

    def is_gone(self, here: ProcessPlace) -> bool:
        """Whether this is the machine of `here`, but before its last start."""
        return (
            self.host == here.host
            and None not in (self.boot, here.boot)
            and (self.boot != here.boot)
        )

    def description(self, here: ProcessPlace) -> str:
        """Where it is, seen from `here`, as words behind a verb."""
        if self.boot == here.boot:
            return f"in another container of {self.host}"
        return f"on {self.host}"


@functools.cache
def this_place() -> ProcessPlace:
    """The place of this process."""
    return ProcessPlace(
        os.uname().nodename,
        _read(Path("/proc/sys/kernel/random/boot_id")),
        _link(Path("/proc/self/ns/pid")),
    )


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:
        return None


def _link(path: Path) -> str | None:
    try:
        return str(path.readlink())
    except OSError:
        return None
