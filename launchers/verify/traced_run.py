"""Start a script under the tracer and read back what its ranks did."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from attrs import frozen

from ..backends.command import Command, stale_variables
from ..backends.interpreter import Interpreter, rank_module
from ..backends.registry import launcher_command
from ..running.runner import LOG, OutputOptions, RunLimits, RunOutcome, run
from ..running.step_line import StepLine
from ..stop_signals import stop_if_signalled
from ..trace.read import RankTrace, read

TRACE_FOLDER = "trace"
STOP_GRACE = 1.0
"""Seconds that a stopped run has to end in: nothing that it does is wanted any more."""
GROUP_OF_ONE = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",  # any free one: no other process connects to it
}


@frozen
class TracedRun:
    """A finished run: its outcome, the traces of its ranks, and its folder."""

    outcome: RunOutcome
    ranks: tuple[RankTrace, ...]
    folder: Path

    @property
    def log(self) -> str:
        """Everything the processes printed."""
        return (self.folder / LOG).read_text("utf-8", errors="replace")


def tracer_prefix(
    folder: Path,
    options: Sequence[str] = (),
    *,
    sealed: bool = False,
    python: Interpreter | None = None,
) -> tuple[str, ...]:
    """The interpreter's arguments before a script's name that trace it into ``folder``.

    ``sealed``: importing ddpfix fails in it. ``python`` is another interpreter than ours.
    """
    tracer = "ddpfix.launchers.trace" + (".sealed" if sealed else "")
    return (*rank_module(tracer, python), "--out", str(folder / TRACE_FOLDER), *options)


def traced_command(
    script: Path,
    arguments: Sequence[str],
    folder: Path,
    *,
    world: int | None,
    options: Sequence[str] = (),
    cpu: bool = True,
    sealed: bool = False,
    python: Interpreter | None = None,
) -> Command:
    """The command that traces ``script`` in a process group of ``world``, or alone for None.

    A group of one is the reference for other world sizes: its sampler uses the order that every
    world size uses, while a script on its own draws from torch's global generator. It needs no
    launcher, which would only import torch once more, but the variables that a launcher sets.
    ``python`` runs the ranks, by default ours.
    """
    tracer = tracer_prefix(folder, options, sealed=sealed, python=python)
    # The direct back end, as torchrun would import torch once more.
    count = world or 1
    start = [python.program if python else sys.executable, *tracer]
    if count > 1:
        start = launcher_command("direct", count, 1, tracer, other=python)
    variables = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    if world == 1:
        variables |= GROUP_OF_ONE
    if cpu:
        variables["CUDA_VISIBLE_DEVICES"] = ""
    return Command(
        argv=(*start, str(script), *arguments),
        env=variables,
        unset=stale_variables(os.environ),
    )


def run_traced(traced: Command, folder: Path) -> TracedRun:
    """Run a command of the tracer quietly, to its end, and read its trace.

    Raises InputError when the program cannot be started or left no trace, and SystemExit when a
    signal stopped the run: no further one is to begin.
    """
    limits = RunLimits(grace=STOP_GRACE)
    outcome = run(traced, folder, limits=limits, output=OutputOptions(quiet=True, view=StepLine()))
    stop_if_signalled()
    if outcome.cause.startswith("stopped by"):
        raise SystemExit(outcome.status)
    return TracedRun(outcome, tuple(read(folder / TRACE_FOLDER)), folder)


StartRun = Callable[[Command, Path], TracedRun]
"""Makes a traced run; ``trace`` is the usual one."""
