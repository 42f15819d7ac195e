"""What traced runs left behind, and the rows of a verdict on it."""

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
    """One promise of the contract, and the evidence in a sentence."""

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

    ``wrote`` is its output folder while it ran, ``output`` where that lies now, ``trace`` the
    folder of its trace. ``global_batch`` = batch x accumulation x world.
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
        """All ranks, and what started them, exited with 0."""
        return self.outcome.status == 0 and set(compare.statuses(self.ranks)) == {0}

    @property
    def aborted_after_the_end(self) -> bool:
        """All ranks had ended with 0, script and exit handlers, and yet a process failed."""
        ended = all(trace.status == 0 and trace.last(Closed) for trace in self.ranks)
        return self.outcome.status != 0 and ended and "SIGABRT" in self.outcome.cause + self._log()

    @property
    def why(self) -> str:
        """How it ended, when that was not well: who hung where, or who failed with what."""
        return (
            disagreement(self.ranks)
            or next(_failures(self.ranks), "")
            or f"{self.outcome.cause}; ranks exited with {listed(compare.statuses(self.ranks))}"
            + self._last_words()
        )

    def _log(self) -> str:
        path = self.trace.parent / LOG
        return path.read_text("utf-8", errors="replace") if path.is_file() else ""

    def _last_words(self) -> str:
        lines = self._log().split("\n")
        said = [line for line in lines if "Error" in line or line.startswith("ddpfix")]
        return f" ({said[-1].strip()[:160]})" if said else ""


def _failures(ranks: Iterable[RankTrace]) -> Iterator[str]:
    for trace in ranks:
        end = trace.last(Exit)
        if end is not None and end.failure is not None:
            words = f"{end.failure.type}: {end.failure.message}".splitlines()[0][:160]
            yield f"rank {trace.rank} died in {end.failure.site}: {words}"


@frozen
class Evidence:
    """All runs that a verdict rests on.

    ``original`` is None where it was not or could not be run, for the reason ``no_original``.
    ``groups`` holds the group of one first: the reference for all others, ``held_to`` how far they
    may be apart. ``again``: for a name in ``groups`` whose weights differ rightfully, a group of
    one that predicted with its checkpoint. ``finer``: for a name in ``groups`` whose norms are a
    little off, another group that takes micro-batches as small: of one, or for a group of one the
    ranks'.
    ``skipped``: why a group was not run. ``cut``: evaluations were cut short on request.
    ``untouched``: the original alone without dropout, to which every group is then held step by
    step.
    ``apart``: why each accumulation trains in a way of its own, as where examples are held against
    their micro-batch, so that a group is held to the group of one with its accumulation.
    ``accumulates``: the script has a flag for it. ``shimmed``: the original ran with what it needs
    of older libraries.
    ``flags`` is C8's row and ``patching`` C9's, which need no run.
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
        """The run that all groups are held to."""
        return self.untouched or self.groups[0]

    def reference_of(self, run: RunTrace) -> RunTrace:
        """The run whose training and scores a group has to share."""
        if not self.apart or self.untouched is not None:
            return self.reference
        alike = (other for other in self.groups if other.accumulation == run.accumulation)
        return next(other for other in alike if other.world == 1 or other is run)
