"""From traces of a step at a few batches to its peaks at any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from . import allocator
from .peak import Curve, NoPrediction, Peak
from .step import MEETING, TrainingStep
from .trace import HOST, AllocationTrace, trace

BATCHES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024)
ENOUGH = 400 << 30
"""Bytes above which no further batch is looked at: no card has as many."""
TRACED = (2, 3, 5)
"""Traced batches, the last only where examples meet, as sizes then are quadratic in the batch. A
batch of 1 would have dimensions that some operations leave out."""


def curve_of(step: TrainingStep, batches: Sequence[int] = BATCHES) -> Curve | NoPrediction:
    """The peaks of a step at all batches that are not beyond ENOUGH, context and DDP left out."""
    return joined(step, [trace(step, batch) for batch in traced_at(step)], batches)


def traced_at(step: TrainingStep) -> tuple[int, ...]:
    """The batches that it has to be traced at."""
    return TRACED[: 2 + (step.network.head in MEETING)]


def joined(
    step: TrainingStep, traces: Sequence[AllocationTrace], batches: Sequence[int] = BATCHES
) -> Curve | NoPrediction:
    """The same from the traces at these batches."""
    first = traces[0]
    if any(other.events != first.events for other in traces):
        return NoPrediction("its operations depend on the batch")
    sizes = [_through(points) for points in zip(*(_sizes(one) for one in traces), strict=True)]
    begin, end = first.again
    once = first.events[:begin] + first.events[end:]
    peaks: list[Peak] = []
    accumulated: list[Peak] = []
    for batch in batches:
        at = [round(sum(c * batch**power for power, c in enumerate(size))) for size in sizes]
        for found, events in ((peaks, once), (accumulated, first.events)):
            found.append(_peak(first, at, events, exact=step.capability is None))
        if accumulated[-1].total > ENOUGH:
            break
    _, flops = _through((first.flops, traces[1].flops))
    moved_once, moved = _through((first.moved, traces[1].moved))
    return Curve(
        tuple(batches[: len(peaks)]),
        tuple(peaks),
        first.trainable,
        round(flops),
        round(moved),
        round(moved_once),
        tuple(accumulated),
    )


def _sizes(one: AllocationTrace) -> list[int]:
    return [0 if block.role == HOST else block.size for block in one.blocks]


def _through(points: tuple[int, ...]) -> list[float]:
    """Coefficients, from the constant up, of the polynomial through (TRACED[i], points[i])."""
    low, high = TRACED[0], TRACED[1]
    slope = (points[1] - points[0]) / (high - low)
    if len(points) == 2:
        return [points[0] - slope * low, slope]
    last = TRACED[2]
    bend = ((points[2] - points[1]) / (last - high) - slope) / (last - low)
    return [
        points[0] - slope * low + bend * low * high,
        slope - bend * (low + high),
        bend,
    ]


def _peak(one: AllocationTrace, sizes: list[int], events: list[int], *, exact: bool) -> Peak:
    """The peak of these sizes; `exact` leaves out how the allocator of a card rounds them."""
    if exact:
        alive, reserved = allocator.exact(sizes, events, one.last), 0
    else:
        alive, reserved = allocator.replay(sizes, events, one.last)
    shares: Counter[str] = Counter()
    for number, size in alive.items():
        if size:
            shares[one.blocks[number].role] += size
    return Peak(**shares, fragmentation=0 if exact else reserved - shares.total())
