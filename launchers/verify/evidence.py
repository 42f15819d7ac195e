"""The traced runs that a verdict rests on, and the rows of the verdict."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from attrs import field, frozen

from ..running.runner import LOG, RunOutcome
from ..trace.events import Closed, Exit
from ..trace.read import RankTrace, disagreement
from . import trace_compare as compare
from .tolerances import FP32, Tolerances
from .unsteady import STEADY, Unsteady
from .wording import comma_list

_ERROR = re.compile(r"Error\b|\berror: |^ddpfix")  # argparse writes "run.py: error: …"
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


TOKEN_MEANS = "the loss is a mean over a micro-batch's tokens"
"""Why results depend on the accumulation, where weights of tokens are to be proven too."""


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
    """One traced run. ``world_size`` is None for a script on its own, outside any process group.

    ``live_output`` is its output folder while it ran, ``output`` the folder that was moved to, and
    ``trace`` the folder of its trace. Global batch = batch x accumulation x world size.
    """

    name: str
    world_size: int | None
    accumulation: int
    outcome: RunOutcome
    ranks: tuple[RankTrace, ...]
    live_output: Path
    output: Path
    trace: Path

    @property
    def ended_well(self) -> bool:
        """Whether all ranks and their launcher exited with 0."""
        return self.outcome.status == 0 and set(compare.exit_statuses(self.ranks)) == {0}

    @property
    def aborted_after_the_end(self) -> bool:
        """Whether a process was aborted after script and exit handlers of all ranks succeeded."""
        ended = all(trace.status == 0 and trace.last(Closed) for trace in self.ranks)
        return self.outcome.status != 0 and ended and "SIGABRT" in self.outcome.cause + self._log()

    @property
    def failure_reason(self) -> str:
        """Why the run failed: which rank hung where, or failed with which error."""
        statuses = comma_list(compare.exit_statuses(self.ranks))
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
        errors = [line for line in lines if _ERROR.search(line)]
        return f" ({errors[-1].strip()[:160]})" if errors else ""


def _failures(ranks: Iterable[RankTrace]) -> Iterator[str]:
    for trace in ranks:
        end = trace.last(Exit)
        if end is not None and end.failure is not None:
            error = f"{end.failure.type}: {end.failure.message}".splitlines()[0][:160]
            if end.failure.site is None:  # before its first line
                yield f"rank {trace.rank} could not begin: {error}"
                continue
            yield f"rank {trace.rank} died in {end.failure.site}: {error}"


@frozen
class Evidence:
    """All runs that a verdict rests on.

    ``original`` and ``patched_alone`` are the original and the patched script, each on its own.
    ``original`` is None where it was not or could not be run, for the reason ``no_original``.
    ``groups`` are runs in process groups; the first has one process and is the reference for the
    others; ``tolerances`` says how far they may differ. ``exact_reference``: with ``--exact``, the
    original alone without dropout: every group's reference.

    Tables by a group's name:
    ``rescored_runs`` holds, where weights may differ, a group of one that predicts with the
    group's checkpoint.
    ``rounding_controls`` holds, where gradient norms are slightly off, a control run with
    micro-batches of the same size but another number of ranks.
    ``double_runs`` holds, where a difference may be rounding, its reference and the group in fp64.

    ``accumulation_note``: why results depend on the accumulation, as where the loss compares the
    examples of a micro-batch; a group's reference is then the group of one with its accumulation.
    ``skip_reasons``: why groups were not run.
    ``evaluations_cut_short``: whether evaluations were cut short on request.
    ``has_accumulation_flag``: the script has a flag for gradient accumulation.
    ``original_needed_shims``: the original needed replacements for parts of older libraries.
    ``unsteady``: what two runs of the original do not have in common.
    ``flags_row`` is the row of C8 and ``patching_row`` that of C9; neither needs a run.
    """

    original: RunTrace | None
    no_original: str
    patched_alone: RunTrace
    groups: tuple[RunTrace, ...]
    flags_row: Row
    patching_row: Row
    evaluations_cut_short: bool = False
    rescored_runs: dict[str, RunTrace] = field(factory=dict)
    rounding_controls: dict[str, RunTrace] = field(factory=dict)
    double_runs: dict[str, tuple[RunTrace, RunTrace]] = field(factory=dict)
    skip_reasons: tuple[str, ...] = ()
    exact_reference: RunTrace | None = None
    tolerances: Tolerances = FP32
    accumulation_note: str = ""
    original_needed_shims: bool = False
    unsteady: Unsteady = STEADY
    has_accumulation_flag: bool = True

    @property
    def reference(self) -> RunTrace:
        """The run that all groups are compared with."""
        return self.exact_reference or self.groups[0]

    def reference_of(self, run: RunTrace) -> RunTrace:
        """The run whose training and scores a group has to reproduce."""
        if not self.accumulation_note or self.exact_reference is not None:
            return self.reference
        candidates = (other for other in self.groups if other.accumulation == run.accumulation)
        return next(other for other in candidates if other.world_size == 1 or other is run)
