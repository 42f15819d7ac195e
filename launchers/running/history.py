"""Find runs by their records, show their progress, follow their output, and stop them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from ...errors import InputError
from ..state import state_folder
from .output_monitor import TAIL, OutputMonitor
from .run_record import RECORD, process_start_time
from .runner import LOG

_POLL = 0.1  # seconds between looks at a run
_LOST = "its launcher was killed"


@attrs.frozen
class Run:
    """A run: its folder and the content of its record."""

    folder: Path
    record: dict[str, Any]

    @property
    def launcher(self) -> int | None:
        """The process id of the launcher while it lives, else None."""
        known = self.record.get("launcher") or {}
        pid, start = known.get("pid", 0), known.get("started")
        return pid if start is not None and process_start_time(pid) == start else None

    @property
    def state(self) -> str:
        """How the run ended, or "running"."""
        cause = str(self.record["cause"])
        return _LOST if cause == "running" and self.launcher is None else cause

    def facts(self) -> dict[str, Any]:
        """The fields of `ddpfix status --json`."""
        monitor = OutputMonitor()
        with contextlib.suppress(OSError), (self.folder / LOG).open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - TAIL))
            monitor.take(1, log.read() + b"\n")
        return {
            "run": self.folder.name,
            "state": self.state,
            "exit_status": self.record["exit_status"],
            "start": self.record["start"],
            "end": self.record["end"],
            "attempts": len(self.record.get("attempts", ())),
            "step": monitor.step,
            "steps": monitor.steps,
            "loss": monitor.losses[-1][2] if monitor.losses else None,
            "folder": str(self.folder),
        }


def read(folder: Path) -> Run:
    """The run in a folder. Raises InputError if there is none, or its record cannot be read."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        return Run(folder, dict(record, cause=record["cause"], exit_status=record["exit_status"]))
    except FileNotFoundError:
        raise InputError(f"{folder}: no run was launched there ({RECORD} is missing)") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder / RECORD}: cannot be read: {error}") from None


def find(name: str | None) -> Run:
    """The run in folder `name`, or the one in the state folder whose name begins with `name`.

    Without a name, the run in the state folder that was launched last.

    Raises:
        InputError: there is no such run, or there are several.

    """
    if name and Path(name).is_dir():
        return read(Path(name).absolute())
    folders = [folder for folder in run_folders() if folder.name.startswith(name or "")]
    exact = [folder for folder in folders if folder.name == name]
    matches = exact or (folders[-1:] if name is None else folders)
    if len(matches) == 1:
        return read(matches[0])
    if not matches:
        what = f"no run {name!r}" if name else "no runs"
        raise InputError(f"{what} in {state_folder() / 'runs'}: pass a run's folder")
    names = ", ".join(folder.name for folder in matches)
    raise InputError(f"{name!r} fits several runs: {names}; say more of the name")


def run_folders() -> list[Path]:
    """The run folders in the state folder, the oldest first."""
    paths = (state_folder() / "runs").glob(f"*/{RECORD}")
    return sorted((path.parent for path in paths), key=lambda folder: folder.name)


def follow(run: Run) -> int:
    """Copy a run's log to standard output until the run ends.

    Returns its exit status, 1 if its launcher was killed.
    """
    with (run.folder / LOG).open("rb") as log:
        size = log.seek(0, os.SEEK_END)
        log.seek(max(0, size - (1 << 14)))
        while True:
            ended = (run := read(run.folder)).state != "running"
            while chunk := log.read(1 << 16):
                sys.stdout.buffer.write(chunk)
                sys.stdout.flush()
            if ended:
                return 1 if run.record["exit_status"] is None else int(run.record["exit_status"])
            time.sleep(_POLL)


def stop(run: Run, now: bool) -> Run:
    """Stop a run and wait for its end; `now` leaves it no grace."""
    pid = run.launcher
    if pid is None:
        return run
    os.kill(pid, signal.SIGTERM)
    while run.launcher is not None:
        time.sleep(_POLL)
        if now and (pid := run.launcher) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)  # the second one kills all of it
    return read(run.folder)


def status_lines(runs: Sequence[Run]) -> list[str]:
    """One line on each run."""
    result = []
    for facts in (run.facts() for run in runs):
        steps = f", step {facts['step']} of {facts['steps']}" if facts["step"] else ""
        loss = f", loss {facts['loss']:g}" if facts["loss"] is not None else ""
        result.append(f"{facts['run']}: {facts['state']}{steps}{loss}; {facts['folder']}")
    return result
