"""A launch that goes on without its terminal."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ...errors import InputError
from .run_record import RECORD

TALK = "launcher.log"
"""What the launcher says, and the run's output once more, where no terminal shows it."""

_POLL = 0.05  # seconds


def detach(words: Sequence[str], output: Path, folder: Path) -> int:
    """Start ``ddpfix`` with these words and its --output, in a session of its own.

    `folder` is where the record will be: `output`, or this machine's part of it. Returns its
    process id once the run has begun. Raises InputError, in its own words, where it ends before.
    """
    before, after = _split(words)
    mine = [word for word in before if word != "--detach"]
    if not any(word == "--output" or word.startswith("--output=") for word in mine):
        mine += ["--output", str(output)]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / TALK).open("wb") as talk:
        child = subprocess.Popen(
            [sys.executable, "-m", __package__.partition(".")[0], *mine, *after],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # the log has it
            stderr=talk,
            start_new_session=True,
        )
    while not (folder / RECORD).exists():
        if child.poll() is not None and not (folder / RECORD).exists():
            said = (folder / TALK).read_text("utf-8", errors="replace").splitlines()
            (folder / TALK).unlink()
            with contextlib.suppress(OSError):  # not empty
                folder.rmdir()
            raise InputError(said[-1].removeprefix("ddpfix: ") if said else "it did not start")
        time.sleep(_POLL)
    return child.pid


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """What comes before the script's own arguments, and these with their ``--``."""
    end = list(words).index("--") if "--" in words else len(words)
    return list(words[:end]), list(words[end:])
