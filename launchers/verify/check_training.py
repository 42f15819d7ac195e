"""C3: whether every group trains, step by step, as the run that it is held to."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import evolve, frozen

from ..trace.events import Parameters
from . import trace_compare as compare
from .evidence import Evidence, Row, RunTrace
from .tolerances import FP32, Tolerances
from .wording import counted, grouped, some

ROUNDED = 10.0
"""How many times its tolerance a gradient norm may be off where it is shown to be rounding."""


@frozen
class Match:
    """How far one run follows another; ``padded`` is the first step with repeated examples, or 0.

    ``problem`` is empty when it follows; ``unproven`` says why nothing can be said.
    """

    steps: int = 0
    loss: float = 0.0
    norm: float = 0.0
    weights: float | None = None
    padded: int = 0
    padding: str = ""
    problem: str = ""
    unproven: str = ""

    @property
    def follows(self) -> bool:
        """Whether it is shown that the run does."""
        return not self.problem and not self.unproven


def trains_the_same(evidence: Evidence) -> Row:
    """C3: each group against the one that it must follow."""
    problems: list[tuple[str, str]] = []
    unproven, said, matches = list(evidence.skipped), [], []
    reference = evidence.reference
    problems += repeated_order(evidence)
    for run in evidence.groups:
        part = compare.ranks_part(run.ranks)
        if part:
            problems.append((run.name, f"the ranks' parameters differ after step {part}"))
    if len(evidence.groups) == 1 and evidence.untouched is None:
        unproven.append("no run to hold against the group of one")
    for run, base in pairs(evidence):
        found = match(base, run, evidence.held_to)
        finer = evidence.finer.get(run.name)
        if finer and (fine := match(finer, run, evidence.held_to)).follows:
            found = nearly(base, run, evidence.held_to)
            said.append(
                f"{run.name}: the norm is {found.norm:.1e} off {base.name} by rounding in "
                f"smaller micro-batches: {finer.name} has as small ones, {fine.norm:.1e} off"
            )
        if found.problem:
            problems.append((run.name, found.problem))
        elif found.unproven:
            unproven.append(f"{run.name}: {found.unproven}")
        else:
            matches.append(found)
        if found.padding:
            said.append(f"{run.name}: {found.padding}")
    if problems:
        return Row("C3", "broken", grouped(problems))
    if not reference.ranks[0].steps:
        return Row("C3", "unproven", f"{reference.name} took no optimizer step")
    if unproven:
        return Row("C3", "unproven", some(unproven, 3))
    weights = [found.weights for found in matches if found.weights is not None]
    sentence = (
        f"{len(matches)} run{'s' if len(matches) > 1 else ''} of {matches[0].steps} steps"
        + (" held to the untouched script alone" if evidence.untouched else "")
        + ": at most "
        f"{max(found.loss for found in matches):.1e} apart in the loss, "
        f"{max(found.norm for found in matches):.1e} in the gradient norm"
        + (f", {max(weights):.1e} in the final parameters" if weights else "")
    )
    if evidence.apart:
        said.append(f"{evidence.apart}: each accumulation is for itself")
    said = [evidence.held_to.said, *said]
    return Row("C3", "holds", "; ".join([sentence, *filter(None, said)]))


def pairs(evidence: Evidence) -> Iterator[tuple[RunTrace, RunTrace]]:
    """Each group with the run that it must follow step by step.

    That is the untouched script, if it is what counts. Else it is, for all groups but the first,
    the run of the same world with another accumulation, for then padding is the same too, or the
    group of one; where accumulations are apart, the group of one with the same accumulation.
    """
    groups = evidence.groups
    if evidence.untouched is not None:
        yield from ((run, evidence.untouched) for run in groups)
        return
    if evidence.apart:
        bases = ((run, evidence.reference_of(run)) for run in groups)
        yield from ((run, base) for run, base in bases if base is not run)
        return
    for number, run in enumerate(groups[1:], 1):
        same_world = [other for other in groups[:number] if other.world == run.world]
        yield run, (same_world or groups)[0]


def match(base: RunTrace, run: RunTrace, held_to: Tolerances) -> Match:
    """Compare the examples, losses, norms and final parameters of two runs of one global batch.

    Steps are held to the tolerances up to the first padded one. From then on the weights differ
    rightfully, so only the examples of each step are compared. Where ``base`` is the untouched
    script on its own, an example that a rank repeats has to count for nothing, and no step is let
    off.
    """
    first, second = compare.steps(base.ranks), compare.steps(run.ranks)
    drawn = compare.draws(base.ranks), compare.draws(run.ranks)
    if base.world is None:
        padded, (padding, problem) = 0, _weightless(*drawn)
    else:
        padded, padding, problem = _same_examples(*drawn, run)
    strict = padded - 1 if padded else min(len(first), len(second))
    one, other = first[:strict], second[:strict]
    problem = problem or _off(one, other, base.name, held_to)
    if not problem and len(first) != len(second):
        if run.ended_well and base.ended_well:
            problem = f"{len(second)} optimizer steps, {base.name} takes {len(first)}"
        else:
            return Match(unproven=f"ended after {len(second)} of {len(first)} steps", padded=padded)
    weights = None if padded or problem else parameters_apart(base, run)
    if weights is not None and not weights <= held_to.weights:
        problem = f"the final parameters are {weights:.1e} off those of {base.name}"
    return Match(
        steps=len(second),
        loss=compare.deviation(one, other, "loss").largest,
        norm=compare.deviation(one, other, "norm").largest,
        weights=weights,
        padded=padded,
        padding=padding,
        problem=problem,
    )


def nearly(base: RunTrace, run: RunTrace, held_to: Tolerances) -> Match:
    """The same for norms that may be a little further apart.

    A product of fewer rows may be rounded otherwise, and a unit at a kink, as of a ReLU, falls to
    its other side: all its gradient comes or goes. Whether it is that shows in another run that
    takes micro-batches as small.
    """
    return match(
        base, run, evolve(held_to, first=ROUNDED * held_to.first, norm=ROUNDED * held_to.norm)
    )


def parted(evidence: Evidence, run: RunTrace) -> bool:
    """Whether a run's weights may differ from the reference's by more than rounding in fp32.

    That is by padding, or where low precision rounds. Scores are then comparable for equal weights
    only.
    """
    low = evidence.held_to != FP32
    return low or bool(match(evidence.reference_of(run), run, evidence.held_to).padded)


def _off(
    one: Sequence[compare.StepNumbers],
    other: Sequence[compare.StepNumbers],
    name: str,
    held_to: Tolerances,
) -> str:
    """The first step that is beyond the tolerances, and by how much; empty where none is."""
    beyond = [
        (
            compare.first_beyond(one[:1], other[:1], quantity, min(held_to.first, tolerance))
            or compare.first_beyond(one, other, quantity, tolerance),
            what,
            quantity,
        )
        for what, quantity, tolerance in (
            ("loss", "loss", held_to.loss),
            ("gradient norm", "norm", held_to.norm),
        )
    ]
    for number, what, quantity in sorted((b for b in beyond if b[0]), key=lambda b: b[0]):
        here = slice(number - 1, number)
        off = compare.deviation(one[here], other[here], quantity).largest
        largest = compare.deviation(one, other, quantity)
        return (
            f"the {what} of step {number} is {off:.1e} off {name} "
            f"(at most {largest.largest:.1e}, step {largest.step})"
        )
    return ""


def _same_examples(
    first: Sequence[compare.GlobalBatch], second: Sequence[compare.GlobalBatch], run: RunTrace
) -> tuple[int, str, str]:
    """First padded step, what is said of padding, and the first step with other examples."""
    padded, said = 0, ""
    for number, (one, other) in enumerate(zip(first, second, strict=False), 1):
        if one.indices == other.indices:
            if len(other.epochs) > 1:
                return padded, said, f"step {number} mixes examples of two epochs"
            continue
        missing, extra = other.lacks(one), one.lacks(other)
        if not missing and one.last and other.last and len(extra) < (run.world or 1):
            if not padded:
                epochs = max(1, sum(draw.last for draw in first))
                padded = number
                said = (
                    f"step {number} (last of its epoch) repeats {len(extra)} example"
                    f"{'s' if len(extra) > 1 else ''} as padding; the losses from there on are not "
                    f"compared, the examples of every step of {epochs} epochs are"
                )
            continue
        if len(other.epochs) > 1 >= len(one.epochs):
            return padded, said, f"step {number} mixes examples of two epochs"
        twice = sum(count - 1 for count in Counter(other.indices).values())
        return (
            padded,
            said,
            f"step {number} trains on other examples: {counted(len(missing), 'missing')}, "
            f"{counted(len(extra), 'foreign or repeated')}"
            + (f", {twice} drawn more than once" if twice else ""),
        )
    return padded, said, ""


def _weightless(
    first: Sequence[compare.GlobalBatch], second: Sequence[compare.GlobalBatch]
) -> tuple[str, str]:
    """What is said of examples that ranks repeat, and the first step with other examples.

    Whether they have no weight is seen by the step's loss and norm.
    """
    repeating = 0
    for number, (one, other) in enumerate(zip(first, second, strict=False), 1):
        missing, extra = other.lacks(one), one.lacks(other)
        if missing or set(extra) - set(one.indices) or len(other.epochs) > 1:
            return "", (
                f"step {number} trains on other examples: {counted(len(missing), 'missing')}, "
                f"{counted(len(set(extra) - set(one.indices)), 'foreign')}"
            )
        repeating += bool(extra)
    if not repeating:
        return "", ""
    return f"ranks without a part repeat an example, with weight 0, in {repeating} steps", ""


def repeated_order(evidence: Evidence) -> list[tuple[str, str]]:
    """Groups whose epochs repeat each other's order in a group, while alone they do not."""
    if not evidence.alone.ranks[0].steps:
        return []

    def orders(run: RunTrace) -> list[list[int | None]]:
        passes = [p for p in run.ranks[0].passes if p.kind == "train" and p.end and p.end.complete]
        return [p.indices for p in passes if len(p.indices) > 3]

    def repeats(run: RunTrace) -> bool:
        found = orders(run)
        return any(a == b for a, b in itertools.pairwise(found))

    if repeats(evidence.alone):
        return []
    sentence = "an epoch repeats the order of the one before (set_epoch)"
    return [(run.name, sentence) for run in evidence.groups if repeats(run)]


def parameters_apart(base: RunTrace, run: RunTrace) -> float | None:
    """|a - b| / |a| over all trained parameters of two runs; None where they were not kept."""
    import numpy

    one, other = _parameters(base), _parameters(run)
    if one is None or other is None:
        return None
    with numpy.load(one) as a, numpy.load(other) as b:
        if set(a.files) != set(b.files):
            return math.inf
        off = math.fsum(float(numpy.square(a[n] - b[n], dtype="f8").sum()) for n in a.files)
        size = math.fsum(float(numpy.square(a[n], dtype="f8").sum()) for n in a.files)
    return math.sqrt(off / size) if size else 0.0


def _parameters(run: RunTrace) -> Path | None:
    """Parameters after the last step, before a checkpoint was loaded over them."""
    kept = [event for event in run.ranks[0].of(Parameters) if event.file]
    last = max((event.after_step for event in kept), default=0)
    return next((run.trace / str(e.file) for e in kept if e.after_step == last), None)
