"""Compute the peaks of a step at any batch from traces at a few batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ...record import replace
from . import allocator
from .peak import Curve, NoPrediction, Peak
from .step import CONTRASTIVE_HEADS, TrainingStep
from .trace import HOST, AllocationTrace, trace

BATCHES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024)
LARGEST_PEAK = 400 << 30
"""Bytes above which larger batches are left out: no card has as many."""
TRACED = (2, 3, 5)
"""Batches to trace; the last only for contrastive losses, whose sizes are quadratic in the batch. A
batch of 1 would have dimensions that some operations drop."""


def trace_curve(step: TrainingStep, batches: Sequence[int] = BATCHES) -> Curve | NoPrediction:
    """Trace a step and compute its peaks up to LARGEST_PEAK, without the context and DDP."""
    return curve_from_traces(
        step, [trace(step, batch) for batch in batches_to_trace(step)], batches
    )


def batches_to_trace(step: TrainingStep) -> tuple[int, ...]:
    """The batches at which a step has to be traced."""
    return TRACED[: 2 + (step.network.head in CONTRASTIVE_HEADS)]


def curve_from_traces(
    step: TrainingStep, traces: Sequence[AllocationTrace], batches: Sequence[int] = BATCHES
) -> Curve | NoPrediction:
    """Compute the peaks of a step at `batches` from its traces at the batches of `traced_at`."""
    first = traces[0]
    if any(other.events != first.events for other in traces):
        return NoPrediction("its operations depend on the batch")
    block_sizes = zip(*map(_sizes, traces), strict=True)
    sizes = [_fit_polynomial(points) for points in block_sizes]
    begin, end = first.accumulated_backward
    once = first.events[:begin] + ([] if step.sharded else first.events[end:])
    peaks: list[Peak] = []
    others: list[Peak] = []  # accumulated, or gathered
    for batch in batches:
        at = [round(sum(c * batch**power for power, c in enumerate(size))) for size in sizes]
        peaks.append(_peak(first, at, once, exact=step.capability is None))
        if step.sharded:
            whole = allocator.alive_after(first.events[:end], dict(enumerate(at)))
            others.append(_by_role(first, whole))
        else:
            others.append(_peak(first, at, first.events, exact=step.capability is None))
        if max(peaks[-1].total, others[-1].total) > LARGEST_PEAK:
            break
    _, flops = _fit_polynomial((first.flops, traces[1].flops))
    moved_once, moved = _fit_polynomial((first.bytes_moved, traces[1].bytes_moved))
    return Curve(
        batches=tuple(batches[: len(peaks)]),
        peaks=tuple(peaks),
        trainable=first.trainable,
        flops=round(flops),
        moved=round(moved),
        moved_once=round(moved_once),
        accumulated=() if step.sharded else tuple(others),
        gathered=tuple(others) if step.sharded else (),
    )


def _sizes(allocations: AllocationTrace) -> list[int]:
    """The bytes of each block on the card."""
    return [0 if block.role == HOST else block.size for block in allocations.blocks]


def _fit_polynomial(points: tuple[int, ...]) -> list[float]:
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


def _peak(
    allocations: AllocationTrace, sizes: list[int], events: list[int], *, exact: bool
) -> Peak:
    """The peak with these block sizes; `exact` does not round them as a card's allocator does."""
    if exact:
        alive, reserved = allocator.replay_exactly(sizes, events, allocations.last_step), 0
    else:
        alive, reserved = allocator.replay(sizes, events, allocations.last_step)
    peak = _by_role(allocations, alive)
    return peak if exact else replace(peak, fragmentation=reserved - peak.total)


def _by_role(allocations: AllocationTrace, alive: Mapping[int, int]) -> Peak:
    """The bytes of blocks by what they are for."""
    by_role: Counter[str] = Counter()
    for number, size in alive.items():
        if size:
            by_role[allocations.blocks[number].role] += size
    return Peak(**by_role)
