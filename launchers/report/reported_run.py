"""Collect what is known of a run: its record, its log's curves, its cards' samples, its diff."""

from __future__ import annotations

import difflib
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from ...errors import InputError
from ..running import history
from ..running.run_record import RECORD
from ..running.runner import LOG, RANKS
from ..state_files import read
from .card_samples import CardSamples, read_samples
from .curves import LogCurves, read_curves


@attrs.frozen
class ReportedPlan:
    """The batch of a run: so many examples per device, accumulated, on so many processes."""

    per_device: int
    accumulation: int
    world: int
    global_batch: int
    why: str = ""


@attrs.frozen
class ReportedAttempt:
    """One start of a run, and how it ended."""

    cause: str
    exit_status: int
    seconds: float
    step: int | None = None
    failure: dict[str, Any] | None = None


@attrs.frozen
class ReportedRecord:
    """What a report reads of a run's record. Older records lack some of it."""

    cause: str
    start: str | None = None
    end: str | None = None
    exit_status: int | None = None
    seconds: float | None = None
    command: str = ""
    argv: list[str] = attrs.field(factory=list)
    cwd: str = ""
    plan: ReportedPlan | None = None
    precision: dict[str, Any] | None = None
    memory: dict[str, Any] | None = None
    cards: list[dict[str, Any]] = attrs.field(factory=list)
    versions: dict[str, str] = attrs.field(factory=dict)
    git: dict[str, Any] | None = None
    attempts: list[ReportedAttempt] = attrs.field(factory=list)

    @property
    def predicted_memory(self) -> int | None:
        """The predicted peak of a card, in bytes; None if it was not predicted."""
        total = ((self.memory or {}).get("peak") or {}).get("total")
        return int(total) if isinstance(total, (int, float)) else None


@attrs.frozen
class ReportedRun:
    """A run, or a training that only a log is known of. `ranks` are the curves of each rank."""

    name: str
    state: str
    curves: LogCurves
    record: ReportedRecord | None = None
    ranks: dict[int, LogCurves] = attrs.field(factory=dict)
    cards: dict[int, CardSamples] = attrs.field(factory=dict)

    @property
    def script(self) -> Path | None:
        """The script that was run, if it is known and still there."""
        record = self.record
        for word in record.argv if record else ():
            path = Path(record.cwd if record else "", word)
            if word.endswith(".py") and path.is_file():
                return path
        return None


def collect(name: str | None, warn: Callable[[str], object]) -> ReportedRun:
    """The run that a name, a folder or a log file stands for; without a name, the latest one.

    Raises:
        InputError: there is none, or its record or log cannot be read.

    """
    if name is not None and Path(name).is_file():
        return ReportedRun(Path(name).name, "known by its log alone", read_curves(Path(name)))
    found = history.find(name, warn)
    folder = found.folder
    ranks = {
        int(log.stem): read_curves(log)
        for log in sorted(folder.joinpath(RANKS).glob("*.log"))
        if log.stem.isdigit()
    }
    curves = ranks[min(ranks)] if ranks else read_curves(folder / LOG)
    return ReportedRun(
        folder.name,
        found.state,
        curves,
        read(folder / RECORD, ReportedRecord),
        ranks,
        read_samples(folder),
    )


def patch_diff(run: ReportedRun, original: Path | None) -> str:
    """The diff from the original to the run's script; from the last commit without an original.

    Raises InputError where the original cannot be read, or the run's script is not known.
    """
    script = run.script
    if original is None:
        return _git_diff(script) if script else ""
    if script is None:
        raise InputError(
            f"{run.name}: its script is not there any more, to compare {original} with"
        )
    try:
        before, after = (
            path.read_text("utf-8", "replace").splitlines() for path in (original, script)
        )
    except OSError as error:
        raise InputError(f"{original}: cannot be read: {error.strerror}") from None
    names = str(original), str(script)
    return "\n".join(difflib.unified_diff(before, after, *names, lineterm=""))


def _git_diff(script: Path) -> str:
    command = ["git", "--no-optional-locks", "-C", str(script.parent), "diff", "HEAD", "--"]
    try:
        done = subprocess.run(
            [*command, script.name], capture_output=True, text=True, errors="replace", timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""
