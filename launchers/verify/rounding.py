"""Tell rounding from other arithmetic, where two runs are further apart than they should be."""

from __future__ import annotations

from attrs import evolve

from .compare_training import Comparison, compare_runs, pairs_to_compare
from .evidence import Evidence, RunTrace
from .tolerances import FP32, FP64, GROWN_ROUNDING, Tolerances

ROUNDING_FACTOR = 10.0
"""Factor on a gradient norm's tolerance where a control run shows the difference is rounding."""


def compare_but_for_rounding(
    evidence: Evidence, base: RunTrace, run: RunTrace
) -> tuple[Comparison, str]:
    """Compare two runs; a difference that others show to be rounding is none, but has a note."""
    comparison = compare_runs(base, run, evidence.tolerances)
    control = evidence.rounding_controls.get(run.name)
    if control and (controlled := compare_runs(control, run, evidence.tolerances)).follows:
        loose = compare_runs_loosely(base, run, evidence.tolerances)
        return loose, (
            f"{run.name}: the norm is {loose.norm:.1e} off {base.name} by rounding in "
            f"smaller micro-batches: {control.name} has as small ones, "
            f"{controlled.norm:.1e} off"
        )
    if comparison.problem and (larger := _larger_that_follows(evidence, base, run)):
        loose = compare_runs_loosely(base, run, evidence.tolerances)
        return loose, (
            f"{run.name}: the norm is {loose.norm:.1e} off {base.name} by rounding: "
            f"{larger.name} splits each batch further and follows it"
        )
    if comparison.problem and run.name in evidence.double_runs:
        double = compare_runs(*evidence.double_runs[run.name], FP64)
        grown = compare_runs(base, run, GROWN_ROUNDING)
        if double.follows and grown.follows:
            return grown, (
                f"{run.name}: {comparison.problem} by rounding: in fp64 the same runs are at most "
                f"{double.loss:.1e} apart in the loss, {double.norm:.1e} in the gradient norm"
            )
    return comparison, ""


def may_be_rounding(evidence: Evidence, base: RunTrace, run: RunTrace) -> bool:
    """Whether a difference between two fp32 runs is no larger than rounding may grow to."""
    if evidence.tolerances != FP32 or not (base.ended_well and run.ended_well):
        return False
    return (
        bool(compare_but_for_rounding(evidence, base, run)[0].problem)
        and compare_runs(base, run, GROWN_ROUNDING).follows
    )


def compare_runs_loosely(base: RunTrace, run: RunTrace, tolerances: Tolerances) -> Comparison:
    """Compare two runs as ``compare_runs`` does, with a larger tolerance for gradient norms.

    A product of fewer rows may round differently, and a unit at a kink, as of a ReLU, then falls
    on its other side: its whole gradient appears or vanishes. A control run with equally small
    micro-batches shows whether that is the cause.
    """
    wider = evolve(
        tolerances,
        first_step=ROUNDING_FACTOR * tolerances.first_step,
        norm=ROUNDING_FACTOR * tolerances.norm,
    )
    return compare_runs(base, run, wider)


def _larger_that_follows(evidence: Evidence, base: RunTrace, run: RunTrace) -> RunTrace | None:
    """Where a run's norms alone are slightly off: a run of more ranks that follows its reference.

    A mistake in how a batch is split or its gradients are averaged would grow with the ranks.
    """
    if not compare_runs_loosely(base, run, evidence.tolerances).follows:
        return None
    larger = (
        other
        for other, its_base in pairs_to_compare(evidence)
        if len(other.ranks) > len(run.ranks) > 1
        and other.accumulation == run.accumulation
        and its_base is base
        and compare_runs(its_base, other, evidence.tolerances).follows
    )
    return next(larger, None)
