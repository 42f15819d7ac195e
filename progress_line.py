"""A line at the foot of a terminal that says how far long work has come."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 1.0  # seconds that pass in silence
CLEAR = "\r\x1b[K"  # back to the start of the line, and empty it


def can_redraw() -> bool:
    """Whether standard error is a terminal on which a line can be drawn again and again.

    Some that call themselves terminals only keep what is written: ``TERM=dumb``, and those of CI.
    """
    return (
        sys.stderr.isatty()
        and os.environ.get("TERM", "") not in ("", "dumb", "unknown")
        and not os.environ.get("CI")
    )


def have_one_terminal() -> bool:
    """Whether both output streams are the same terminal, with this process in its foreground."""
    try:
        first, second = (os.fstat(stream.fileno()) for stream in (sys.stdout, sys.stderr))
        return (
            can_redraw()
            and sys.stdout.isatty()
            and first.st_rdev == second.st_rdev
            and (sys.stderr.encoding or "").lower().replace("-", "") == "utf8"
            and os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
        )
    except (OSError, ValueError):
        return False


class ProgressLine:
    """Shows one text after the other on standard error; nothing where nobody looks."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._can_redraw = can_redraw()
        self._is_shown = False

    @property
    def seconds(self) -> float:
        """Seconds since the work began."""
        return time.monotonic() - self._began

    def show(self, text: str) -> None:
        """Show a text in place of the last one, once the work takes long."""
        if self._can_redraw and self.seconds > PATIENCE:
            columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
            self._is_shown = True
            self._write(f"{CLEAR}{text[: columns - 1]}")

    def end(self) -> None:
        """Take the line away."""
        if self._is_shown:
            self._is_shown = False
            self._write(CLEAR)

    def _write(self, text: str) -> None:
        try:
            print(text, end="", file=sys.stderr, flush=True)
        except (OSError, ValueError):
            self._can_redraw = False  # the terminal has gone


@contextmanager
def elapsed(what: str) -> Iterator[None]:
    """Show what goes on, and for how many seconds, for the time of a block."""
    if not can_redraw():
        yield
        return
    import threading  # of no use in a pipe

    line, ended = ProgressLine(), threading.Event()

    def show() -> None:
        while not ended.wait(0.5):
            line.show(f"  {what}: {math.ceil(line.seconds)} s")

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        line.end()
