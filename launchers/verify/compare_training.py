"""Compare the training of two runs: examples, losses, gradient norms and final parameters."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import frozen

from ..trace.events import Parameters
from . import trace_compare as compare
from .evidence import Evidence, RunTrace
from .tolerances import FP32, Tolerances

# A class of patched scripts, which deals the batches of a sampler of the script's own.
WHOLE_BATCHES = "DealtBatches"


@frozen
class Comparison:
    """How closely one run's training follows another's.

    ``loss``, ``norm`` and ``weights`` are the largest relative differences of loss, gradient norm
    and final parameters. ``padded_step`` is the first step with repeated examples (from 1), or 0,
    and ``padding_note`` a sentence about it. ``problem`` is empty when the run follows;
    ``unproven`` says why it could not be determined.
    """

    steps: int = 0
    loss: float = 0.0
    norm: float = 0.0
    weights: float | None = None
    padded_step: int = 0
    padding_note: str = ""
    problem: str = ""
    unproven: str = ""

    @property
    def follows(self) -> bool:
        """Whether the run has been shown to follow the other."""
        return not self.problem and not self.unproven


def pairs_to_compare(evidence: Evidence) -> Iterator[tuple[RunTrace, RunTrace]]:
    """Pair each group with the run that it must follow step by step.

    With ``--exact`` that is the untouched script. Otherwise the first group is the reference, and
    every other follows the first run of the same world size (which has the same padding), or else
    the group of one; where accumulation matters, the group of one with the same accumulation.
    """
    groups = evidence.groups
    if evidence.exact_reference is not None:
        yield from ((run, evidence.exact_reference) for run in groups)
        return
    if evidence.accumulation_note:
        bases = ((run, evidence.reference_of(run)) for run in groups)
        yield from ((run, base) for run, base in bases if base is not run)
        return
    for number, run in enumerate(groups[1:], 1):
        same_world = [other for other in groups[:number] if other.world_size == run.world_size]
        yield run, (same_world or groups)[0]


def compare_runs(base: RunTrace, run: RunTrace, tolerances: Tolerances) -> Comparison:
    """Compare the examples, losses, norms and final parameters of two runs of one global batch.

    Numbers are compared up to the first padded step. From then on the weights may legitimately
    differ, so only the examples of each step are compared. Where ``base`` is the untouched script
    on its own, repeated examples must have weight 0, and every step is compared.
    """
    first, second = compare.steps(base.ranks), compare.steps(run.ranks)
    batches = compare.global_batches(base.ranks), compare.global_batches(run.ranks)
    if base.world_size is None:
        padded_step, (padding_note, problem) = 0, _compare_weightless_examples(*batches)
    else:
        padded_step, padding_note, problem = _compare_examples(*batches, run)
    if problem and deals_whole_batches(run):
        unproven = f"{problem}: what is in a batch of the script's own sampler depends on its size"
        return Comparison(unproven=unproven, padded_step=padded_step)
    compared = padded_step - 1 if padded_step else min(len(first), len(second))
    one, other = first[:compared], second[:compared]
    difference = "" if problem else _first_difference(one, other, base.name, tolerances)
    if difference and any(step.draws for trace in run.ranks for step in trace.steps):
        unproven = f"{difference}, in steps that draw random numbers, which each rank draws anew"
        return Comparison(unproven=unproven, padded_step=padded_step)
    problem = problem or difference
    if not problem and len(first) != len(second):
        if run.ended_well and base.ended_well:
            problem = f"{len(second)} optimizer steps, {base.name} takes {len(first)}"
        else:
            return Comparison(
                unproven=f"ended after {len(second)} of {len(first)} steps",
                padded_step=padded_step,
            )
    weights = None if padded_step or problem else _parameter_distance(base, run)
    if weights is not None and not weights <= tolerances.weights:
        problem = f"the final parameters are {weights:.1e} off those of {base.name}"
    return Comparison(
        steps=len(second),
        loss=compare.deviation(one, other, "loss").largest,
        norm=compare.deviation(one, other, "norm").largest,
        weights=weights,
        padded_step=padded_step,
        padding_note=padding_note,
        problem=problem,
    )


def deals_whole_batches(run: RunTrace) -> bool:
    """Whether ranks take turns at batches that a sampler of the script makes."""
    return any(
        each.begin.sampler == WHOLE_BATCHES and each.kind == "train" for each in run.ranks[0].passes
    )


def weights_may_differ(evidence: Evidence, run: RunTrace) -> bool:
    """Whether a run's weights may differ from the reference's by more than fp32 rounding.

    Padding, low precision and steps that draw random numbers cause that. Scores are then comparable
    only at equal weights.
    """
    if evidence.tolerances != FP32:
        return True
    comparison = compare_runs(evidence.reference_of(run), run, evidence.tolerances)
    return bool(comparison.padded_step or comparison.unproven)


def _first_difference(
    one: Sequence[compare.StepNumbers],
    other: Sequence[compare.StepNumbers],
    name: str,
    tolerances: Tolerances,
) -> str:
    """Describe the first step beyond the tolerances, and by how much; "" where there is none."""
    beyond = [
        (
            compare.first_step_beyond(
                one[:1], other[:1], quantity, min(tolerances.first_step, tolerance)
            )
            or compare.first_step_beyond(one, other, quantity, tolerance),
            label,
            quantity,
        )
        for label, quantity, tolerance in (
            ("loss", "loss", tolerances.loss),
            ("gradient norm", "norm", tolerances.norm),
        )
    ]
    for number, label, quantity in sorted((b for b in beyond if b[0]), key=lambda b: b[0]):
        step = slice(number - 1, number)
        off = compare.deviation(one[step], other[step], quantity).largest
        worst = compare.deviation(one, other, quantity)
        return (
            f"the {label} of step {number} is {off:.1e} off {name} "
            f"(at most {worst.largest:.1e}, step {worst.step})"
        )
    return ""


def _compare_examples(
    first: Sequence[compare.GlobalBatch], second: Sequence[compare.GlobalBatch], run: RunTrace
) -> tuple[int, str, str]:
    """The first padded step, a note on padding, and the first step with other examples."""
    padded_step, note = 0, ""
    for number, (one, other) in enumerate(zip(first, second, strict=False), 1):
        if one.indices == other.indices:
            if len(other.epochs) > 1:
                return padded_step, note, f"step {number} mixes examples of two epochs"
            continue
        missing, extra = other.lacks(one), one.lacks(other)
        if (
            not missing
            and one.ends_epoch
            and other.ends_epoch
            and len(extra) < (run.world_size or 1)
        ):
            if not padded_step:
                padded_step = number
                note = (
                    f"step {number} (last of its epoch) repeats {len(extra)} example"
                    f"{'s' if len(extra) > 1 else ''} as padding; the losses from there on are not "
                    f"compared, {_compared_steps(first)}"
                )
            continue
        if len(other.epochs) > 1 >= len(one.epochs):
            return padded_step, note, f"step {number} mixes examples of two epochs"
        repeats = sum(count - 1 for count in Counter(other.indices).values())
        return (
            padded_step,
            note,
            f"step {number} trains on other examples: {len(missing)} missing, "
            f"{len(extra)} foreign or repeated"
            + (f", {repeats} drawn more than once" if repeats else ""),
        )
    return padded_step, note, ""


def _compared_steps(batches: Sequence[compare.GlobalBatch]) -> str:
    """A clause on the steps whose examples are known, which those of kept batches are not."""
    epochs = len({epoch for batch in batches for epoch in batch.epochs})
    again = sum(not batch.indices for batch in batches)
    return f"the examples of every step of {epochs} epoch{'s' if epochs > 1 else ''} are" + (
        f", those of {again} steps are unknown, whose batches no loader dealt anew" if again else ""
    )


def _compare_weightless_examples(
    first: Sequence[compare.GlobalBatch], second: Sequence[compare.GlobalBatch]
) -> tuple[str, str]:
    """A note on examples that ranks repeat, and the first step with other examples.

    That repeated examples have weight 0 shows in the step's loss and norm.
    """
    repeating = 0
    for number, (one, other) in enumerate(zip(first, second, strict=False), 1):
        missing, extra = other.lacks(one), one.lacks(other)
        foreign = set(extra) - set(one.indices)
        if missing or foreign or len(other.epochs) > 1:
            return "", (
                f"step {number} trains on other examples: {len(missing)} missing, "
                f"{len(foreign)} foreign"
            )
        repeating += bool(extra)
    if not repeating:
        return "", ""
    return f"ranks without a part repeat an example, with weight 0, in {repeating} steps", ""


def _parameter_distance(base: RunTrace, run: RunTrace) -> float | None:
    """|a - b| / |a| over all trained parameters of two runs; None where they were not saved."""
    import numpy

    one, other = _parameters(base), _parameters(run)
    if one is None or other is None:
        return None
    with numpy.load(one) as a, numpy.load(other) as b:
        if set(a.files) != set(b.files):
            return math.inf
        off = size = 0.0
        for name in a.files:
            first, second = a[name].astype("f8"), b[name].astype("f8")
            same = (first == second) | (numpy.isnan(first) & numpy.isnan(second))
            off += float(numpy.square(first[~same] - second[~same]).sum())
            size += float(numpy.square(first[numpy.isfinite(first)]).sum())
    if off and not math.isfinite(off):
        return math.inf
    return math.sqrt(off / size) if size else 0.0


def _parameters(run: RunTrace) -> Path | None:
    """The file of parameters after the last step, before a checkpoint was loaded over them."""
    saved = [event for event in run.ranks[0].events_of(Parameters) if event.file]
    last = max((event.after_step for event in saved), default=0)
    return next((run.trace / str(e.file) for e in saved if e.after_step == last), None)
