"""Standard streams that are closed, or whose reader or terminal has gone."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import IO, Any


def open_closed_streams() -> None:
    """Open the null device in the place of closed standard streams (``>&-`` in a shell).

    Otherwise the next file that is opened gets such a number, and what is printed goes into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            stream = open(number, "r" if number == 0 else "w", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def abandon(stream: IO[Any]) -> None:
    """Direct a stream that cannot be written to to the null device.

    What is left in its buffer would fail again when the interpreter flushes it at exit, which then
    makes the exit status 120.
    """
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def say(line: str) -> None:
    """Print a line on standard error; one that nobody can read any more changes nothing."""
    try:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        abandon(sys.stderr)
