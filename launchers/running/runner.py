"""Start a command, show and keep its output, pass signals on, and leave no process behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from ...errors import InputError
from ..backends.command import Command
from ..parent_death import die_with_parent
from ..state import state_folder
from .output_monitor import OutputMonitor
from .process_tree import MARK, ProcessTree
from .run_record import RECORD, RunRecord, opening, versions
from .signals import Stop
from .tee import Logs, Tee
from .watchdog import HUNG, RunWatchdog, SilenceLimits

if TYPE_CHECKING:
    from ..gpus.monitor import Monitor
    from .failure import RunFailure

LOG = "log.txt"
RANKS = "ranks"
"""The folder of each rank's own output."""
TRAIN_LOG = "train.log"
"""What the log is called in the script's own output folder."""

_POLL = 0.1  # seconds between looks at the child
_UNDER_WAY = 0.3  # seconds until the ranks have been started and can be left alone


@attrs.frozen
class RunOutcome:
    """How a run ended, or one attempt at it.

    `status` is the exit status to pass on: the child's own, 128 + n when signal n ended it or the
    user stopped it with n, 124 when it hung. `cause` is the same in words. `left_behind` counts
    processes that outlived the child and were stopped. `failure` tells what failed first, where
    something did. `step` is how far its last progress bar was.
    """

    status: int
    cause: str
    seconds: float
    left_behind: int
    failure: RunFailure | None = None
    step: int | None = None


@attrs.frozen
class Attempt:
    """An attempt at a run: its command, and facts about it for the record."""

    command: Command
    facts: Mapping[str, Any] = attrs.field(factory=dict)


Again = Callable[[RunOutcome], Attempt | None]
"""What to run after an attempt that failed, if anything."""


def default_folder(recipe: str, environ: Mapping[str, str] | None = None) -> Path:
    """A run folder not yet there: STATE/runs/<time>-<recipe>."""
    name = f"{datetime.now():%Y%m%d-%H%M%S}-{recipe}"
    runs = state_folder(environ) / "runs"
    folder, count = runs / name, 1
    while folder.exists():
        count += 1
        folder = runs / f"{name}-{count}"
    return folder


def check_folder(folder: Path) -> None:
    """Raise InputError if `folder` cannot become a run folder; create nothing."""
    if (folder / RECORD).exists():
        raise InputError(f"{folder}: holds the record of another run; choose another --output")
    existing = next(path for path in [folder, *folder.absolute().parents] if path.exists())
    if not existing.is_dir():
        raise InputError(f"{existing}: is no folder; choose another --output")
    if not os.access(existing, os.W_OK):
        raise InputError(f"{existing}: cannot be written to; choose another --output")


def run(
    command: Command,
    folder: Path,
    *,
    facts: Mapping[str, Any] | None = None,
    late: Callable[[], Mapping[str, Any]] = dict,
    grace: float = 30.0,
    quiet: bool = False,
    again: Again | None = None,
    patience: SilenceLimits | None = None,
    rank_logs: bool = False,
    cards: Sequence[int] = (),
    output: Path | None = None,
) -> RunOutcome:
    """Run `command` to its end; its output goes to the terminal and to `folder`/log.txt.

    `quiet` keeps it from the terminal. With `rank_logs` each rank's output is also kept in
    `folder`/ranks/RANK.log, and the terminal shows that of this machine's first rank and of no
    other; the ranks then write to sockets, where they else write to pipes.

    `folder`/run.json is written when the run starts, again at each attempt and when it ends;
    `facts` (plan, recipe, cards, anything JSON can hold) go into it, and so do those that `late`
    finds once the ranks are on their way. A first SIGINT, SIGTERM or SIGHUP is passed on and the
    run has `grace` seconds to end; a second one, or the end of the grace, kills all of it. When
    this process is killed, the child gets SIGTERM (Linux).

    After an attempt that failed of itself, `again` is asked for a command to go on with. `cards`
    (indices as in nvidia-smi) are watched in `folder`/gpus.jsonl. In the script's `output` folder
    the log can be found as train.log.

    Raises:
        InputError: the folder is no fit place, or the program cannot be started.

    """
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    run_id = os.urandom(16).hex()
    patience = patience or SilenceLimits()
    record = RunRecord(folder / RECORD, opening(command, run_id, facts or {}))
    attempts: list[dict[str, Any]] = []
    began = time.monotonic()
    following: Attempt | None = Attempt(command)
    ranks = folder / RANKS if rank_logs else None
    with Logs(folder / LOG, ranks) as logs, Stop(grace) as stop:
        while following is not None:
            attempt = _Attempt(following.command, run_id, logs, quiet, patience)
            try:
                with _monitor(folder, cards) as monitor:
                    outcome = attempt.run(
                        stop, under_way=lambda: record.update(versions=dict(versions()), **late())
                    )
            except OSError as error:
                message = f"{following.command.argv[0]}: cannot be started: {error.strerror}"
                record.close(exit_status=2, cause=message)
                raise InputError(message) from None
            seen = {"gpus": monitor.facts()} if monitor else {}
            attempts.append({**following.facts, **attempt.facts(outcome), **seen})
            _link(folder / LOG, output)
            failed = outcome.status and stop.received is None
            following = again(outcome) if again and failed else None
            record.update(attempts=attempts)
    outcome = attrs.evolve(outcome, seconds=time.monotonic() - began)
    record.close(
        exit_status=outcome.status,
        cause=outcome.cause,
        seconds=round(outcome.seconds, 3),
        left_behind=outcome.left_behind,
        failure=attrs.asdict(outcome.failure) if outcome.failure else None,
    )
    return outcome


class _Attempt:
    """One start of a command, to its end."""

    def __init__(
        self, command: Command, run_id: str, logs: Logs, quiet: bool, patience: SilenceLimits
    ) -> None:
        self._command, self._run_id = command, run_id
        self._logs, self._quiet, self._patience = logs, quiet, patience
        self._heard = OutputMonitor()

    def run(self, stop: Stop, under_way: Callable[[], None]) -> RunOutcome:
        """To its end; `under_way` is called once meanwhile.

        Raises OSError if the program cannot be started.
        """
        marks = {MARK: self._run_id, **self._patience.variables}
        with Tee(self._logs, self._quiet, self._heard.take) as tee:
            stdout, stderr = tee.ends
            child = subprocess.Popen(
                self._command.argv,
                env=self._command.environment(os.environ) | marks,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )
            tee.begin()
            family = ProcessTree(child, self._run_id)
            watchdog = RunWatchdog(family, self._heard, self._patience)
            stop.reach(family)
            waiting: list[Callable[[], None]] = [under_way]
            while child.poll() is None:
                tee.pump(_POLL)
                tee.look(child.pid)
                stop.escalate()
                watchdog.look()
                if waiting and time.monotonic() > self._heard.began + _UNDER_WAY:
                    waiting.pop()()
            left_behind = family.end()
            tee.drain()
        for call in waiting:
            call()
        status, cause = _ending(child.returncode, stop.received, watchdog)
        of_itself = status and stop.received is None
        failure = _first_failure(self._heard) if of_itself else None
        seconds = time.monotonic() - self._heard.began
        return RunOutcome(status, cause, seconds, left_behind, failure, self._heard.step)

    def facts(self, outcome: RunOutcome) -> dict[str, Any]:
        """For the record."""
        return {
            "command": self._command.line,
            "exit_status": outcome.status,
            "cause": outcome.cause,
            "seconds": round(outcome.seconds, 3),
            "left_behind": outcome.left_behind,
            "failure": attrs.asdict(outcome.failure) if outcome.failure else None,
            **self._heard.facts(),
        }


def _ending(returncode: int, received: int | None, watchdog: RunWatchdog) -> tuple[int, str]:
    if watchdog.cause and received is None:
        own = returncode if returncode > 0 else 128 - returncode
        return (HUNG if watchdog.hung else own or 1), watchdog.cause
    if returncode == 0:
        return 0, "finished"
    if received is not None:
        return 128 + received, f"stopped by {signal.Signals(received).name}"
    if returncode < 0:
        return 128 - returncode, f"killed by {signal.Signals(-returncode).name}"
    return returncode, f"failed with exit status {returncode}"


def _monitor(folder: Path, cards: Sequence[int]) -> AbstractContextManager[Monitor | None]:
    if not cards:
        return contextlib.nullcontext()
    from ..gpus.monitor import SAMPLES, Monitor  # with pynvml

    return Monitor(folder / SAMPLES, cards)


def _first_failure(heard: OutputMonitor) -> RunFailure:
    from .failure import first_failure  # most runs have none

    return first_failure(heard.output())


def _link(log: Path, output: Path | None) -> None:
    """Let the log be found in the script's output folder, once the script has made that."""
    if output is not None and output.is_dir():
        with contextlib.suppress(OSError):
            (output / TRAIN_LOG).symlink_to(os.path.relpath(log, output))
