"""The entry of ``ddpfix``: a check of plain paths starts without what reads command lines.

That is the check of a file saved or committed; to import click takes as long as to check it.
A check, a patch and a plan end at once: to take apart trees and modules that nobody needs any more
is a tenth of their time, a fifth of a patch's, and half of a check's of many files.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line that the process was given."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # of any locale
    words = sys.argv[1:]
    from .patcher.collector import patient_collector

    with patient_collector():
        if words[:1] == ["check"] and words[1:] and not any(word.startswith("-") for word in words):
            os._exit(check_plainly(words[1:]))
        from .cli import main as from_command_line

        try:
            from_command_line()
        except SystemExit as end:
            if words[:1] not in (["check"], ["patch"], ["plan"]) or not isinstance(end.code, int):
                raise
            os._exit(flushed(end.code))


def flushed(status: int) -> int:
    """The exit status once all output is written. Raises BrokenPipeError."""
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def check_plainly(paths: list[str]) -> int:
    """``ddpfix check`` without options; the exit status, all output being written."""
    from .errors import InputError
    from .patcher.check import check
    from .patcher.request import Request

    try:
        return flushed(check(Request(paths)))
    except InputError as error:
        print(f"ddpfix: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader has seen enough
        return 1
    except KeyboardInterrupt:
        print("\nAborted!", file=sys.stderr)
        return 1
