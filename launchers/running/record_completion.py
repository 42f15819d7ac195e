"""Complete the record of a run whose launcher died."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from .run_record import utc_now

LAUNCHER_KILLED = "its launcher was killed"
"""The cause of the end of such a run; nobody knows the status it would have ended with."""


def complete_record(path: Path, run_id: str, left_behind: int) -> None:
    """Write into the open record of run `run_id` that its launcher was killed.

    `left_behind` is the number of processes that were ended afterwards. A record that says how the
    run ended, is another run's or cannot be read stays as it is. On a full disk the room that was
    reserved for the record is enough.
    """
    spare = path.with_suffix(".json.part")
    with contextlib.suppress(OSError, ValueError, AttributeError):
        content = json.loads(path.read_bytes())
        if content.get("run_id") != run_id:
            return
        if content.get("end") is None:
            content |= {"end": utc_now(), "cause": LAUNCHER_KILLED, "left_behind": left_behind}
            _write(spare, json.dumps(content, indent=2) + "\n")
            spare.replace(path)
        spare.unlink(missing_ok=True)


def _write(spare: Path, text: str) -> None:
    # Without O_TRUNC, so that the blocks that the file has are used again.
    with os.fdopen(os.open(spare, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.write(text.encode())
        file.truncate()
