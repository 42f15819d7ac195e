"""Runs by their records: which there are, how far they are, and whether they still run."""

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
from .run_record import RECORD, started
from .runner import LOG

_POLL = 0.1  # seconds between looks at a run
LOST = "its launcher was killed"


@attrs.frozen
class Run:
    """A run: its folder and what its record says."""

    folder: Path
    record: dict[str, Any]

    @property
    def launcher(self) -> int | None:
        """The process id of the launcher, as long as that process lives."""
        known = self.record.get("launcher") or {}
        pid, since = known.get("pid", 0), known.get("started")
        return pid if since is not None and started(pid) == since else None

    @property
    def state(self) -> str:
        """How it ended in words, or "running"."""
        cause = str(self.record["cause"])
        return LOST if cause == "running" and self.launcher is None else cause

    def facts(self) -> dict[str, Any]:
        """What `ddpfix status` tells."""
        heard = OutputMonitor()
        with contextlib.suppress(OSError), (self.folder / LOG).open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - TAIL))
            heard.take(1, log.read() + b"\n")
        return {
            "run": self.folder.name,
            "state": self.state,
            "exit_status": self.record["exit_status"],
            "start": self.record["start"],
            "end": self.record["end"],
            "attempts": len(self.record.get("attempts", ())),
            "step": heard.step,
            "steps": heard.steps,
            "loss": heard.losses[-1][2] if heard.losses else None,
            "folder": str(self.folder),
        }


def read(folder: Path) -> Run:
    """The run of a folder. Raises InputError if there is none, or its record cannot be read."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        return Run(folder, dict(record, cause=record["cause"], exit_status=record["exit_status"]))
    except FileNotFoundError:
        raise InputError(f"{folder}: no run was launched there ({RECORD} is missing)") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder / RECORD}: cannot be read: {error}") from None


def find(name: str | None) -> Run:
    """The run of this folder, or the one below the state folder whose name begins so.

    Without a name it is the one that was launched last, of those in the state folder.

    Raises:
        InputError: there is none, or several.

    """
    if name and Path(name).is_dir():
        return read(Path(name).absolute())
    folders = [folder for folder in kept() if folder.name.startswith(name or "")]
    exact = [folder for folder in folders if folder.name == name]
    chosen = exact or (folders[-1:] if name is None else folders)
    if len(chosen) == 1:
        return read(chosen[0])
    if not chosen:
        what = f"no run {name!r}" if name else "no runs"
        raise InputError(f"{what} in {state_folder() / 'runs'}: pass a run's folder")
    names = ", ".join(folder.name for folder in chosen)
    raise InputError(f"{name!r} fits several runs: {names}; say more of the name")


def kept() -> list[Path]:
    """The folders of runs below the state folder, the oldest first."""
    paths = (state_folder() / "runs").glob(f"*/{RECORD}")
    return sorted((path.parent for path in paths), key=lambda folder: folder.name)


def follow(run: Run) -> int:
    """Copy a run's log to standard output until the run ends; its exit status, 1 if it was lost."""
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
    """Stop a run and wait for its end; it has its grace, unless it is to end `now`."""
    pid = run.launcher
    if pid is None:
        return run
    os.kill(pid, signal.SIGTERM)
    while run.launcher is not None:
        time.sleep(_POLL)
        if now and (pid := run.launcher) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)  # a second one kills all of it
    return read(run.folder)


def lines(runs: Sequence[Run]) -> list[str]:
    """One line on each run."""
    told = []
    for facts in (run.facts() for run in runs):
        steps = f", step {facts['step']} of {facts['steps']}" if facts["step"] else ""
        loss = f", loss {facts['loss']:g}" if facts["loss"] is not None else ""
        told.append(f"{facts['run']}: {facts['state']}{steps}{loss}; {facts['folder']}")
    return told
