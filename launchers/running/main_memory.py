"""Measure the main memory that a process needs for a training step, in any torch since 1.13.

What a process holds at its most depends on what malloc keeps of freed memory, and grows with the
batch in leaps. What tensors take does not, so it is measured by torch's own records.
"""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path
from typing import Any


class StepMemory:
    """Records what a step allocates, from `start` to `stop`."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._profile: Any = None
        self._held = 0
        self.most = 0  # bytes of the process at the peak of the step; 0 if that is not known

    def start(self) -> None:
        """Begin to record; other memory is what the process holds now."""
        self._held = resident()
        profiler = self._torch.profiler
        with contextlib.suppress(Exception):  # the script may be profiled already
            profile = profiler.profile(
                activities=[profiler.ProfilerActivity.CPU], profile_memory=True
            )
            profile.__enter__()
            self._profile = profile

    def stop(self) -> None:
        """End the record and compute the peak."""
        if self._profile is None:
            return
        with contextlib.suppress(Exception):  # of another torch, with other records
            self._profile.__exit__(None, None, None)
            self.most = self._held + peak_of(self._profile.profiler.kineto_results.events())


def peak_of(events: Any) -> int:
    """The most bytes at once of a profiler's records of allocations, above 0, and releases."""
    memory = [event for event in events if event.name() == "[memory]"]
    unit = "start_ns" if memory and hasattr(memory[0], "start_ns") else "start_us"
    now = most = 0
    for event in sorted(memory, key=lambda event: getattr(event, unit)()):
        now += event.nbytes()
        most = max(most, now)
    return most


def resident() -> int:
    """The bytes that the process holds, after what malloc can give back; 0 if it is not known."""
    with contextlib.suppress(OSError, AttributeError):  # elsewhere than with glibc
        ctypes.CDLL(None).malloc_trim(0)
    return _status("VmRSS")


def most_resident() -> int:
    """The most bytes that the process has held."""
    most = _status("VmHWM")
    if most:
        return most
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _status(name: str) -> int:
    """A number of bytes of Linux' record of the process; 0 where there is none."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0
    found = [line.split()[1] for line in lines if line.startswith(name + ":")]
    return int(found[0]) * 1024 if found else 0
