"""Find runs by their records, show their progress, follow their output, and stop them."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import attrs

from ...errors import InputError
from .machine import this_place
from .output_monitor import last_progress
from .record_completion import LAUNCHER_KILLED
from .run_folder import runs_folders
from .run_record import RECORD, process_start_time
from .runner import LOG
from .stored_run import Progress, StoredRun, read_run

_POLL = 0.1  # seconds between looks at a run
_RUNNING = "running"
_TAILS = (1 << 13, 1 << 18)
"""Bytes at the end of a log that are searched for its last step and loss, the fewest first."""


@attrs.frozen
class Run:
    """A run: its folder and what its record says."""

    folder: Path
    record: StoredRun

    @property
    def launcher(self) -> int | None:
        """The process id of the launcher while it lives on this machine, else None."""
        known = self.record.launcher
        if known is None or known.started is None or not known.place.is_here(this_place()):
            return None
        return known.pid if process_start_time(known.pid) == known.started else None

    @property
    def elsewhere(self) -> str:
        """Where it runs if that is not here, as words behind a verb; else empty.

        Whether it was killed there is not to be seen from here.
        """
        known, here = self.record.launcher, this_place()
        if self.record.cause != _RUNNING or known is None:
            return ""
        if known.place.is_here(here) or known.place.is_gone(here):
            return ""
        return known.place.description(here)

    @property
    def is_running(self) -> bool:
        """Whether it runs, as far as is known."""
        return self.record.cause == _RUNNING and bool(self.elsewhere or self.launcher)

    @property
    def state(self) -> str:
        """How the run ended, or that it is running, and where if that is elsewhere."""
        if self.record.cause != _RUNNING:
            return self.record.cause
        if self.elsewhere:
            return f"running elsewhere, {self.elsewhere}"
        return _RUNNING if self.launcher else LAUNCHER_KILLED

    def facts(self) -> dict[str, Any]:
        """The fields of `ddpfix status --json`."""
        record = self.record
        progress = record.progress if record.cause != _RUNNING else None
        if progress is None:
            progress = _progress_of_log(self.folder / LOG)
        return {
            "run": self.folder.name,
            "state": self.state,
            "host": record.launcher.host if record.launcher else None,
            "exit_status": record.exit_status,
            "start": record.start,
            "end": record.end,
            "attempts": record.progress.attempts if record.progress else 0,
            "step": progress.step,
            "steps": progress.steps,
            "loss": progress.loss,
            "folder": str(self.folder),
        }


def _progress_of_log(path: Path) -> Progress:
    """How far a run is by the end of its log."""
    step = steps = loss = None
    with contextlib.suppress(OSError), path.open("rb") as log:
        size = log.seek(0, os.SEEK_END)
        for tail in _TAILS:
            log.seek(max(0, size - tail))
            step, steps, loss = last_progress(log.read(tail))
            if tail >= size or None not in (step, loss):
                break
    return Progress(0, step, steps, loss)


def read(folder: Path) -> Run:
    """The run in a folder. Raises InputError if there is none, or its record cannot be read."""
    try:
        return Run(folder, read_run(str(folder / RECORD)))
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{folder}: no run was launched there ({RECORD} is missing)") from None


def read_all(folders: Iterable[Path]) -> tuple[list[Run], list[str]]:
    """The runs in these folders, and for each whose record cannot be read a line that says so."""
    runs, errors = [], []
    for folder in folders:
        try:
            runs.append(Run(folder, read_run(f"{folder}/{RECORD}")))
        except (FileNotFoundError, NotADirectoryError):
            continue  # claimed, and not begun
        except InputError as error:
            errors.append(str(error))
    return runs, errors


def find(name: str | None, warn: Callable[[str], object]) -> Run:
    """The run in folder `name`, or the one whose name begins with `name`: see `run_folders`.

    Without a name, the one of those that was launched last; `warn` is told of later ones
    whose records cannot be read.

    Raises:
        InputError: there is no such run, or there are several.

    """
    if name and Path(name).is_dir():
        return read(Path(name).absolute())
    if name is None:
        return _latest(warn)
    folders = [folder for folder in run_folders() if folder.name.startswith(name)]
    matches = [folder for folder in folders if folder.name == name] or folders
    if len(matches) == 1:
        return read(matches[0])
    if not matches:
        raise InputError(f"no run {name!r} in {_places()}: pass a run's folder")
    names = ", ".join(folder.name for folder in matches)
    raise InputError(f"{name!r} fits several runs: {names}; say more of the name")


def _places() -> str:
    return " or ".join(map(str, runs_folders()))


def _latest(warn: Callable[[str], object]) -> Run:
    for folder in reversed(run_folders()):
        runs, errors = read_all([folder])
        for error in errors:
            warn(error)
        if runs:
            return runs[0]
    raise InputError(f"no runs in {_places()}: pass a run's folder")


def run_folders() -> list[Path]:
    """The folders that runs of this project and of the state folder have claimed, oldest first."""
    return sorted(
        (folder for runs in runs_folders() for folder in _inside(runs)),
        key=lambda folder: folder.name,
    )


def _inside(runs: Path) -> list[Path]:
    with contextlib.suppress(OSError), os.scandir(runs) as entries:
        return [runs / entry.name for entry in entries]
    return []


def follow(run: Run) -> int:
    """Copy a run's log to standard output until the run ends.

    Returns its exit status, 1 if its launcher was killed.
    """
    with _log(run) as log:
        size = log.seek(0, os.SEEK_END)
        log.seek(max(0, size - (1 << 14)))
        while True:
            ended = not (run := read(run.folder)).is_running
            while chunk := log.read(1 << 16):
                sys.stdout.buffer.write(chunk)
                sys.stdout.flush()
            if ended:
                return 1 if run.record.exit_status is None else run.record.exit_status
            time.sleep(_POLL)


def _log(run: Run) -> IO[bytes]:
    try:
        return (run.folder / LOG).open("rb")
    except OSError as error:
        raise InputError(f"{run.folder / LOG}: cannot be read: {error.strerror}") from None


def stop(run: Run, now: bool) -> Run:
    """Stop a run and wait for its end; `now` leaves it no grace.

    Raises InputError if it runs elsewhere, or is another user's.
    """
    if run.elsewhere:
        raise InputError(
            f"{run.folder}: the run is {run.elsewhere}: stop it from there, with "
            f"`ddpfix stop {shlex.quote(str(run.folder))}`"
        )
    if not run.is_running:
        return run
    _ask_to_end(run)
    while run.launcher is not None:
        time.sleep(_POLL)
        if now:
            _ask_to_end(run)  # the second time kills all of it
    return read(run.folder)


def _ask_to_end(run: Run) -> None:
    if (pid := run.launcher) is None:
        return
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    except PermissionError:
        raise InputError(f"{run.folder}: the run is another user's (process {pid})") from None


def status_lines(runs: Iterable[Run]) -> Iterator[str]:
    """One line on each run."""
    for facts in (run.facts() for run in runs):
        steps = f", step {facts['step']} of {facts['steps']}" if facts["step"] else ""
        loss = f", loss {facts['loss']:g}" if facts["loss"] is not None else ""
        yield _printable(f"{facts['run']}: {facts['state']}{steps}{loss}; {facts['folder']}")


def _printable(text: str) -> str:
    """The text on one line: a folder may have any name."""
    return text if text.isprintable() else ascii(text)[1:-1]
