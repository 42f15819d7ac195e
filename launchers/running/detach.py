"""Start a launch that outlives its terminal."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ...errors import InputError
from ..private_files import make_private_folder, open_private
from .run_record import RECORD

_LAUNCHER_LOG = "launcher.log"
"""What the launcher would print to the terminal: its messages and the run's output."""

_POLL = 0.05  # seconds


def detach(words: Sequence[str], output: Path, folder: Path) -> int:
    """Start ``ddpfix`` with these words in a session of its own; its process id.

    `output` is the run folder, added as --output unless the words have one; `folder`, where the
    record will be, is the same or this machine's part of it. Returns once the run has begun. Raises
    InputError with the launcher's own message if it ends before.
    """
    before, after = _split(words)
    own = [word for word in before if word != "--detach"]
    if not any(word == "--output" or word.startswith("--output=") for word in own):
        own += ["--output", str(output)]
    make_private_folder(folder)
    log_path = folder / _LAUNCHER_LOG
    with open_private(log_path, "wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", __package__.partition(".")[0], *own, *after],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # log.txt of the run has it
            stderr=log,
            start_new_session=True,
        )
    while not (folder / RECORD).exists():
        if child.poll() is not None and not (folder / RECORD).exists():
            lines = log_path.read_text("utf-8", errors="replace").splitlines()
            log_path.unlink()
            with contextlib.suppress(OSError):  # not empty
                folder.rmdir()
            raise InputError(lines[-1].removeprefix("ddpfix: ") if lines else "it did not start")
        time.sleep(_POLL)
    return child.pid


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the words before the ``--`` that begins the script's own arguments."""
    end = list(words).index("--") if "--" in words else len(words)
    return list(words[:end]), list(words[end:])
