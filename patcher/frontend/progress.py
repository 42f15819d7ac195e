"""Show on a terminal how far a long check has come."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...progress_line import ProgressLine


class CheckProgress:
    """Counts files on stderr, in one line that it takes away at the end; nothing in a pipe."""

    def __init__(self) -> None:
        self._line = ProgressLine()

    def checked(self, count: int, total: int) -> None:
        """Say that ``count`` of ``total`` files are checked."""
        self._line.show(f"checked {count} of {total} files")

    def end(self) -> None:
        """Take the line away."""
        self._line.end()


@contextmanager
def shown_progress() -> Iterator[CheckProgress]:
    """A progress line for the time of a block."""
    progress = CheckProgress()
    try:
        yield progress
    finally:
        progress.end()
