"""Show on a terminal how far a long check has come."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 1.0  # seconds that pass in silence
CLEAR = "\r\x1b[K"  # back to the start of the line, and empty it


class CheckProgress:
    """Counts files on stderr, in one line that it takes away at the end; nothing in a pipe."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._is_shown = False

    def checked(self, count: int, total: int) -> None:
        """Say that ``count`` of ``total`` files are checked."""
        if sys.stderr.isatty() and time.monotonic() - self._began > PATIENCE:
            self._is_shown = True
            print(f"{CLEAR}checked {count} of {total} files", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Take the line away."""
        if self._is_shown:
            print(CLEAR, end="", file=sys.stderr, flush=True)


@contextmanager
def shown_progress() -> Iterator[CheckProgress]:
    """A progress line for the time of a block."""
    progress = CheckProgress()
    try:
        yield progress
    finally:
        progress.end()
