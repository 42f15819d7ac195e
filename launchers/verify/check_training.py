"""C3: check that every group trains step by step like its reference run."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from . import trace_compare as compare
from .compare_training import Comparison, pairs_to_compare
from .data_notes import data_notes, numbers_missing_in_groups
from .evidence import Evidence, Row, RunTrace
from .rounding import compare_but_for_rounding
from .wording import first_few, group_by_problem


def trains_the_same(evidence: Evidence) -> Row:
    """C3: compare each group with the run that it must follow."""
    problems: list[tuple[str, str]] = []
    unproven, notes, comparisons = list(evidence.skip_reasons), [], []
    reference = evidence.reference
    if missing := numbers_missing_in_groups(evidence):
        unproven.append(missing)
    notes += data_notes(evidence)
    problems += _repeated_epoch_orders(evidence)
    for run in evidence.groups:
        step = compare.first_divergent_step(run.ranks)
        if step:
            problems.append((run.name, f"the ranks' parameters differ after step {step}"))
    if len(evidence.groups) == 1 and evidence.exact_reference is None:
        unproven.append("no run to hold against the group of one")
    for run, base in pairs_to_compare(evidence):
        comparison, note = compare_but_for_rounding(evidence, base, run)
        if note:
            notes.append(note)
        if comparison.problem:
            problems.append((run.name, comparison.problem))
        elif comparison.unproven:
            unproven.append(f"{run.name}: {comparison.unproven}")
        else:
            comparisons.append(comparison)
        if comparison.padding_note:
            notes.append(f"{run.name}: {comparison.padding_note}")
    if problems:
        return Row("C3", "broken", group_by_problem(problems))
    if not reference.ranks[0].steps:
        return Row("C3", "unproven", f"{reference.name} took no optimizer step")
    if unproven:
        return Row("C3", "unproven", first_few(unproven, 3))
    if evidence.accumulation_note:
        notes.append(f"{evidence.accumulation_note}: each accumulation is for itself")
    notes = [_largest_differences(evidence, comparisons), evidence.tolerances.summary, *notes]
    return Row("C3", "holds", "; ".join(filter(None, notes)))


def _largest_differences(evidence: Evidence, comparisons: Sequence[Comparison]) -> str:
    """One sentence on how far runs that follow their reference are apart at most."""
    weights = [each.weights for each in comparisons if each.weights is not None]
    return (
        f"{len(comparisons)} run{'s' if len(comparisons) > 1 else ''} of "
        f"{comparisons[0].steps} steps"
        + (" held to the untouched script alone" if evidence.exact_reference else "")
        + ": at most "
        f"{max(each.loss for each in comparisons):.1e} apart in the loss, "
        f"{max(each.norm for each in comparisons):.1e} in the gradient norm"
        + (f", {max(weights):.1e} in the final parameters" if weights else "")
    )


def _repeated_epoch_orders(evidence: Evidence) -> list[tuple[str, str]]:
    """Groups in which an epoch repeats the previous one's order, if the script alone does not."""
    if not evidence.patched_alone.ranks[0].steps:
        return []

    def orders(run: RunTrace) -> list[list[int | None]]:
        passes = [p for p in run.ranks[0].passes if p.kind == "train" and p.end and p.end.complete]
        return [p.indices for p in passes if len(p.indices) > 3]

    def repeats(run: RunTrace) -> bool:
        return any(a == b for a, b in itertools.pairwise(orders(run)))

    if repeats(evidence.patched_alone):
        return []
    sentence = "an epoch repeats the order of the one before (set_epoch)"
    return [(run.name, sentence) for run in evidence.groups if repeats(run)]
