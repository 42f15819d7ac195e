"""CPU cores."""

from __future__ import annotations

import os

CORES_ELSEWHERE = 4
"""CPU cores for each process of another machine, of which hardly one has fewer for each card."""


def available_cores() -> int:
    """Count the CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
