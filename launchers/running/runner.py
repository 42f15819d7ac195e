"""Run a command: show and log its output, pass signals on, and leave no process behind."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from ...errors import InputError
from ..backends.command import Command
from ..private_files import make_private_folder
from .guardian import GuardedCommand, Guardian
from .kernel_kills import count_kernel_kills
from .output_monitor import OutputMonitor
from .process_tree import MARK, ProcessTree
from .run_folder import check_folder
from .run_record import RECORD, RunRecord, initial_content, versions
from .signals import SignalForwarder
from .tee import Logs, Tee
from .view import CardSample, RunState, RunView
from .watchdog import HANG_STATUS, RunWatchdog, SilenceLimits

if TYPE_CHECKING:
    from ..gpus.monitor import Monitor
    from .failure import RunFailure

LOG = "log.txt"
RANKS = "ranks"
"""The folder of each rank's own output."""
TRAIN_LOG = "train.log"
"""The name of the link to the log in the script's own output folder."""

_POLL = 0.1  # seconds between looks at the child
_STARTUP = 0.3  # seconds until the ranks have been started and need no attention


@attrs.frozen
class RunOutcome:
    """How a run, or one attempt of it, ended.

    `status` is the exit status to pass on: the child's own, 128 + n when signal n ended it or the
    user stopped it with n, 124 when it hung. `cause` is the same in words. `left_behind` counts
    processes that outlived the child and were stopped. `failure` is the first failure, if any.
    `step` is the last position of the last progress bar.
    """

    status: int
    cause: str
    seconds: float
    left_behind: int
    failure: RunFailure | None = None
    step: int | None = None


@attrs.frozen
class Attempt:
    """One start of a run: its command, and facts about it for the record."""

    command: Command
    facts: Mapping[str, Any] = attrs.field(factory=dict)


NextAttempt = Callable[[RunOutcome], Attempt | None]
"""Decides how a run continues after a failed attempt; None ends it."""


@attrs.frozen
class RunLimits:
    """When a run is stopped: how long it may be silent, and `grace`, the seconds to end in.

    The grace begins with the first SIGINT, SIGTERM or SIGHUP, which is passed on to the run.
    """

    grace: float = 30.0
    silence: SilenceLimits = attrs.field(factory=SilenceLimits)


@attrs.frozen
class OutputOptions:
    """Where the output of a run goes, other than its log.

    `quiet` keeps it from the terminal. `view` shows the run, and the output in place of our own
    streams unless that is quiet. With `rank_logs` each rank's output is also written to
    ranks/RANK.log of the run folder, and the terminal shows only that of this machine's first rank;
    the ranks then write to sockets, else to pipes. In `script_folder`, the script's own output
    folder, the log is linked as train.log.
    """

    quiet: bool = False
    rank_logs: bool = False
    script_folder: Path | None = None
    view: RunView | None = None


@attrs.frozen
class RunFacts:
    """Facts for the record of a run: anything that JSON can hold.

    `known` are there from the start; `late` is called for more while the ranks start up.
    """

    known: Mapping[str, Any] = attrs.field(factory=dict)
    late: Callable[[], Mapping[str, Any]] = dict


def run(
    command: Command,
    folder: Path,
    *,
    limits: RunLimits | None = None,
    output: OutputOptions | None = None,
    facts: RunFacts | None = None,
    next_attempt: NextAttempt | None = None,
    cards: Sequence[int] = (),
    last: bool = False,
) -> RunOutcome:
    """Run `command` to its end; its output goes to the terminal and to `folder`/log.txt.

    `folder`/run.json is written when the run starts, after each attempt and when it ends; `facts`
    go into it. A first SIGINT, SIGTERM or SIGHUP is passed on; a second one, or the end of the
    grace, kills all processes of the run. When this process is killed, the run's guardian ends
    them and completes the record.

    After an attempt that failed by itself, `next_attempt` decides how to continue. `cards`
    (indices as in nvidia-smi) are sampled into `folder`/gpus.jsonl. `last`: this process ends soon
    after the run, and ignores those signals until then.

    Raises:
        InputError: the folder cannot be used, or the program cannot be started.

    """
    check_folder(folder)
    make_private_folder(folder)
    facts = facts or RunFacts()
    limits = limits or RunLimits()
    run_id = os.urandom(16).hex()
    began = time.monotonic()
    with (
        SignalForwarder(limits.grace, last=last) as signals,
        Guardian(folder / RECORD, run_id, limits.grace) as guardian,
    ):
        record = RunRecord(folder / RECORD, initial_content(command, run_id, facts.known))
        try:
            outcome = _Run(
                folder,
                record,
                run_id,
                limits,
                output or OutputOptions(),
                late_facts=facts.late,
                cards=cards,
                signals=signals,
                guardian=guardian,
            ).run(command, next_attempt)
        except InputError as error:
            record.close(exit_status=2, cause=str(error))
            raise
        except BaseException as error:
            record.close(exit_status=1, cause=f"its launcher failed: {error!r}")
            raise
        outcome = attrs.evolve(outcome, seconds=time.monotonic() - began)
        record.close(
            exit_status=outcome.status,
            cause=outcome.cause,
            seconds=round(outcome.seconds, 3),
            left_behind=outcome.left_behind,
            failure=attrs.asdict(outcome.failure) if outcome.failure else None,
        )
    return outcome


@attrs.frozen
class _Run:
    """A run whose record is open: one attempt after the other."""

    folder: Path
    record: RunRecord
    run_id: str
    limits: RunLimits
    output: OutputOptions
    late_facts: Callable[[], Mapping[str, Any]]
    cards: Sequence[int]
    signals: SignalForwarder
    guardian: Guardian

    def run(self, command: Command, next_attempt: NextAttempt | None) -> RunOutcome:
        """Make attempts until one succeeds, a signal arrives, or `next_attempt` gives up."""
        attempts: list[dict[str, Any]] = []
        upcoming: Attempt | None = Attempt(command)
        ranks = self.folder / RANKS if self.output.rank_logs else None
        with Logs(self.folder / LOG, ranks) as logs:
            while upcoming is not None:
                outcome, facts = self._attempt(upcoming.command, logs)
                attempts.append({**upcoming.facts, **facts})
                _link(self.folder / LOG, self.output.script_folder)
                # Without its guardian a further attempt would have nobody to look after it.
                final = not outcome.status or self.signals.received or self.guardian.death
                upcoming = None if final or not next_attempt else next_attempt(outcome)
                self.record.update(attempts=attempts)
                if upcoming is not None and self.signals.received is not None:
                    # It came between the two: nobody was there to be stopped by it.
                    status, cause = _stopped_by(self.signals.received)
                    return attrs.evolve(outcome, status=status, cause=cause)
        return outcome

    def _attempt(self, command: Command, logs: Logs) -> tuple[RunOutcome, dict[str, Any]]:
        """Start the command and wait for its end; the outcome, and facts for the record."""
        supervisor = _Supervisor(
            command, self.run_id, self.guardian, logs, self.output, self.limits.silence
        )
        try:
            with _monitor(self.folder, self.cards) as monitor:
                cards = (lambda: monitor.latest) if monitor else tuple
                outcome = supervisor.run(self.signals, self._complete_record, cards)
        except OSError as error:
            message = f"{command.argv[0]}: cannot be started: {error.strerror}"
            raise InputError(message) from None
        gpus = {"gpus": monitor.facts()} if monitor else {}
        return outcome, {**supervisor.facts(outcome), **gpus}

    def _complete_record(self) -> None:
        self.record.update(versions=dict(versions()), **self.late_facts())


class _Supervisor:
    """Starts a command once and looks after it to its end."""

    def __init__(
        self,
        command: Command,
        run_id: str,
        guardian: Guardian,
        logs: Logs,
        output: OutputOptions,
        silence: SilenceLimits,
    ) -> None:
        self._command, self._run_id, self._guardian = command, run_id, guardian
        self._logs, self._output, self._silence = logs, output, silence
        self._monitor = OutputMonitor()

    def run(
        self,
        signals: SignalForwarder,
        when_started: Callable[[], None],
        cards: Callable[[], Sequence[CardSample]],
    ) -> RunOutcome:
        """Run the command to its end; `when_started` is called once, when the ranks are starting.

        Nothing is shown before. `cards` are their last samples.

        Raises OSError if the program cannot be started.
        """
        kills = count_kernel_kills()
        view, quiet = self._output.view, self._output.quiet
        show = view.show if view else None
        with (
            contextlib.closing(view) if view else contextlib.nullcontext(),
            Tee(self._logs, quiet, self._monitor.take, show) as tee,
        ):
            child = self._start(tee)
            tree = ProcessTree(child.pid, self._run_id, self._guardian.members)
            watchdog = RunWatchdog(tree, self._monitor, self._silence)
            state = RunState(self._monitor, watchdog, signals, self._silence, cards)
            signals.forward_to(tree)
            pending: list[Callable[[], None]] = [when_started]
            while child.poll() is None:
                tee.pump(_POLL)
                tee.look(child.pid)
                signals.escalate()
                watchdog.look()
                if pending and time.monotonic() > self._monitor.began + _STARTUP:
                    pending.pop()()
                if view is not None and not pending:
                    view.look(state)
            left_behind = tree.end()
            tee.drain()
        self._monitor.end()
        for call in pending:
            call()
        status, cause = _ending(child.returncode, signals.received, watchdog, self._guardian.death)
        failed = status and signals.received is None and not self._guardian.death
        failure = None
        if failed:
            own = "" if watchdog.cause else _signal_name(child.returncode)  # not one of ours
            how = "hung" if watchdog.hung else own
            failure = _first_failure(self._monitor, how, kills)
        seconds = time.monotonic() - self._monitor.began
        return RunOutcome(status, cause, seconds, left_behind, failure, self._monitor.step)

    def _start(self, tee: Tee) -> GuardedCommand:
        variables = {MARK: self._run_id, **self._silence.variables}
        environment = self._command.environment(os.environ) | variables
        child = self._guardian.start(self._command.argv, environment, tee.ends)
        tee.begin()
        return child

    def facts(self, outcome: RunOutcome) -> dict[str, Any]:
        """The attempt's entry in the record."""
        return {
            "command": self._command.line,
            "exit_status": outcome.status,
            "cause": outcome.cause,
            "seconds": round(outcome.seconds, 3),
            "left_behind": outcome.left_behind,
            "failure": attrs.asdict(outcome.failure) if outcome.failure else None,
            **self._monitor.facts(),
        }


def _ending(
    returncode: int | None, received: int | None, watchdog: RunWatchdog, guardian_death: str
) -> tuple[int, str]:
    """The exit status to pass on, and the cause in words."""
    assert returncode is not None  # it has ended
    own = returncode if returncode >= 0 else 128 - returncode
    if guardian_death and received is None:
        return own or 1, guardian_death
    if watchdog.cause and received is None:
        return (HANG_STATUS if watchdog.hung else own or 1), watchdog.cause
    if returncode == 0:
        return 0, "finished"
    if received is not None:
        return _stopped_by(received)
    if returncode < 0:
        return own, f"killed by {signal.Signals(-returncode).name}"
    return own, f"failed with exit status {returncode}"


def _stopped_by(received: int) -> tuple[int, str]:
    return 128 + received, f"stopped by {signal.Signals(received).name}"


def _monitor(folder: Path, cards: Sequence[int]) -> AbstractContextManager[Monitor | None]:
    if not cards:
        return contextlib.nullcontext()
    from ..gpus.monitor import SAMPLES_FILE, Monitor  # with pynvml

    return Monitor(folder / SAMPLES_FILE, cards)


def _first_failure(monitor: OutputMonitor, how: str, kills: int | None) -> RunFailure:
    from .failure import first_failure  # most runs have none

    return first_failure(
        monitor.output(),
        how=how,
        recovered=monitor.recovered,
        kernel_kills=(count_kernel_kills() or 0) - kills if kills is not None else 0,
    )


def _signal_name(returncode: int | None) -> str:
    """The signal that ended a process; empty if none did."""
    return signal.Signals(-returncode).name if returncode and returncode < 0 else ""


def _link(log: Path, script_folder: Path | None) -> None:
    """Link the log into the script's output folder, once the script has made that."""
    if script_folder is not None and script_folder.is_dir():
        with contextlib.suppress(OSError):
            (script_folder / TRAIN_LOG).symlink_to(os.path.relpath(log, script_folder))
