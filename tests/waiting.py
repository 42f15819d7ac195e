"""Wait for what other processes do, with deadlines that a slow machine keeps too."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEADLINE = 120.0  # seconds


def until(condition: Callable[[], bool], launcher: subprocess.Popen[Any] | None = None) -> None:
    """Wait for the condition, but no longer than the launcher it depends on lives."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert launcher is None or launcher.poll() is None or condition(), "ended too early"
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.02)


def ends(pid: int, seconds: float = DEADLINE) -> bool:
    """Whether a process ends in so many seconds; a zombie, which nobody waits for, has."""
    deadline = time.monotonic() + seconds
    while _lives(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
