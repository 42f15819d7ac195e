"""The traced runs that a verdict rests on, and the rows of the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from attrs import field, frozen

from ..running.runner import LOG, RunOutcome
from ..trace.events import Closed, Exit
from ..trace.read import RankTrace, disagreement
from . import trace_compare as compare
from .tolerances import FP32, Tolerances
from .wording import listed

Status = Literal["holds", "broken", "unproven", "not judged"]
TITLES = {
    "C1": "stands on its own",
    "C2": "one process computes what the original did",
    "C3": "every world size and accumulation trains the same",
    "C4": "evaluation scores every example once",
    "C5": "every file has one writer and appears whole",
    "C6": "no rank hangs, all end well",
    "C7": "the schedule spans the real optimizer steps",
    "C8": "a flag that is passed is obeyed",
    "C9": "only the announced lines differ",
}


@frozen
class Row:
    """The verdict on one promise of the contract, with the evidence in a sentence."""

    code: str
    status: Status
    evidence: str

    @property
    def title(self) -> str:
        """The promise in a few words."""
        return TITLES[self.code]


@frozen
class RunTrace:
    """One traced run. ``world`` is None for a script on its own, outside any process group.

    ``wrote`` is its output folder while it ran, ``output`` the folder that was moved to, and
    ``trace`` the folder of its trace. Global batch = batch x accumulation x world size.
    """

    name: str
    world: int | None
    accumulation: int
    outcome: RunOutcome
    ranks: tuple[RankTrace, ...]
    wrote: Path
    output: Path
    trace: Path

    @property
    def ended_well(self) -> bool:
        """Whether all ranks and their launcher exited with 0."""
        return self.outcome.status == 0 and set(compare.statuses(self.ranks)) == {0}

    @property
    def aborted_after_the_end(self) -> bool:
        """Whether a process was aborted after script and exit handlers of all ranks succeeded."""
        ended = all(trace.status == 0 and trace.last(Closed) for trace in self.ranks)
        return self.outcome.status != 0 and ended and "SIGABRT" in self.outcome.cause + self._log()

    @property
    def why(self) -> str:
        """Why the run failed: which rank hung where, or failed with which error."""
        statuses = listed(compare.statuses(self.ranks))
        return (
            disagreement(self.ranks)
            or next(_failures(self.ranks), "")
            or f"{self.outcome.cause}; ranks exited with {statuses}{self._last_error()}"
        )

    def _log(self) -> str:
        path = self.trace.parent / LOG
        return path.read_text("utf-8", errors="replace") if path.is_file() else ""

    def _last_error(self) -> str:
        lines = self._log().split("\n")
        errors = [line for line in lines if "Error" in line or line.startswith("ddpfix")]
        return f" ({errors[-1].strip()[:160]})" if errors else ""


def _failures(ranks: Iterable[RankTrace]) -> Iterator[str]:
    for trace in ranks:
        end = trace.last(Exit)
        if end is not None and end.failure is not None:
            error = f"{end.failure.type}: {end.failure.message}".splitlines()[0][:160]
            yield f"rank {trace.rank} died in {end.failure.site}: {error}"


@frozen
class Evidence:
    """All runs that a verdict rests on.

    ``original`` and ``alone`` are the original and the patched script, each on its own.
    ``original`` is None where it was not or could not be run, for the reason ``no_original``.
    ``groups`` are runs in process groups; the first has one process and is the reference for the
    others; ``held_to`` says how far they may differ.
    ``untouched``: with ``--exact``, the original alone without dropout: every group's reference.

    Two tables by a group's name:
    ``again`` holds, where weights may differ, a group of one that predicts with the
    group's checkpoint.
    ``finer`` holds, where gradient norms are slightly off, a control run with
    micro-batches of the same size but another number of ranks.

    ``apart``: why results depend on the accumulation, as where the loss compares the
    examples of a micro-batch; a group's reference is then the group of one with its accumulation.
    ``skipped``: why groups were not run.
    ``cut``: whether evaluations were cut short on request.
    ``accumulates``: the script has a flag for gradient accumulation.
    ``shimmed``: the original needed replacements for parts of older libraries.
    ``flags`` is the row of C8 and ``patching`` that of C9; neither needs a run.
    """

    original: RunTrace | None
    no_original: str
    alone: RunTrace
    groups: tuple[RunTrace, ...]
    flags: Row
    patching: Row
    cut: bool = False
    again: dict[str, RunTrace] = field(factory=dict)
    finer: dict[str, RunTrace] = field(factory=dict)
    skipped: tuple[str, ...] = ()
    untouched: RunTrace | None = None
    held_to: Tolerances = FP32
    apart: str = ""
    shimmed: bool = False
    accumulates: bool = True

    @property
    def reference(self) -> RunTrace:
        """The run that all groups are compared with."""
        return self.untouched or self.groups[0]

    def reference_of(self, run: RunTrace) -> RunTrace:
        """The run whose training and scores a group has to reproduce."""
        if not self.apart or self.untouched is not None:
            return self.reference
        candidates = (other for other in self.groups if other.accumulation == run.accumulation)
        return next(other for other in candidates if other.world == 1 or other is run)
