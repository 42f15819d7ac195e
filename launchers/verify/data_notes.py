"""What the examples or the training itself leave unproven: NaN, and targets of one length."""

from __future__ import annotations

import math

from ..trace.events import Backward, StepEvent
from . import trace_compare as compare
from .evidence import TOKEN_MEANS, Evidence


def numbers_missing_in_groups(evidence: Evidence) -> str:
    """Why nothing is proven where groups compute NaN and no process alone does; "" elsewhere."""
    alone = evidence.original or evidence.patched_alone
    missing = _steps_without_numbers(evidence.reference.ranks)
    if not missing or _steps_without_numbers(alone.ranks):
        return ""
    return (
        f"{evidence.reference.name} computes NaN from step {missing[0]} on, {alone.name} does not"
    )


def data_notes(evidence: Evidence) -> list[str]:
    """What the examples or the training itself left unproven."""
    notes = []
    if missing := _steps_without_numbers(evidence.reference.ranks):
        notes.append(
            f"loss or norm of {len(missing)} steps is NaN, in every run as in the original: NaN "
            "is taken to equal NaN"
        )
    if evidence.accumulation_note == TOKEN_MEANS and (why := _token_weights_unseen(evidence)):
        notes.append(f"token weights unproven: {why}")
    return notes


def _token_weights_unseen(evidence: Evidence) -> str:
    """Why ranks would agree without weights for their targets too; "" where they would not."""
    steps = [
        counts
        for run in evidence.groups
        if len(run.ranks) > 1
        for counts in _targets_per_step(run.ranks)
    ]
    if not steps:
        return "no step of several ranks was taken"
    if any(len(set(counts)) > 1 for counts in steps):
        return ""
    if steps[0][0] is None:
        return "how many targets a rank's loss had was not seen"
    return "in every step each rank's loss had as many targets as the others'"


def _steps_without_numbers(run: compare.Run) -> list[int]:
    """The steps (from 1) whose loss or gradient norm is NaN."""
    numbers = enumerate(compare.steps(run), 1)
    return [n for n, step in numbers if math.isnan(step.loss) or math.isnan(step.norm)]


def _targets_per_step(run: compare.Run) -> list[tuple[int | None, ...]]:
    """For every optimizer step, how many targets each rank's cross entropies had; None: unseen."""
    per_rank = []
    for trace in run:
        counts: list[int | None] = []
        pending: list[int | None] = []
        for event in trace.events:
            if isinstance(event, Backward):
                pending.append(event.targets)
            elif isinstance(event, StepEvent):
                known = [count for count in pending if count is not None]
                counts.append(sum(known) if known else None)
                pending = []
        per_rank.append(counts)
    return list(zip(*per_rank, strict=False))
