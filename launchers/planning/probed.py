"""Memory and time of a step at any batch, from real steps at two batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...record import record
from ..memory.peak import Curve, Peak
from ..memory.process_overhead import context_bytes

if TYPE_CHECKING:  # with pynvml
    from ..gpus.model import Gpu


@record
class ProbedBatch:
    """What real steps of a process took at one batch: the most bytes, and seconds a step.

    The bytes are those that torch's allocator reserved on a card, or of main memory on the CPU.
    """

    per_device: int
    bytes: int
    seconds: float


@record
class Line:
    """A number that is `fixed` and grows by `per_example`."""

    fixed: float
    per_example: float

    def at(self, batch: int) -> float:
        """The number at a batch."""
        return self.fixed + self.per_example * batch


def line_through(points: Sequence[tuple[int, float]]) -> Line:
    """The line through two points, which does not fall; level at the larger if there is one."""
    (low, less), (high, more) = min(points), max(points)
    slope = max(0.0, (more - less) / (high - low)) if high > low else 0.0
    return Line(max(less, more) - slope * high, slope)


def memory_line(probed: Sequence[ProbedBatch]) -> Line:
    """Bytes of a process by its batch."""
    return line_through([(one.per_device, one.bytes) for one in probed])


def time_line(probed: Sequence[ProbedBatch]) -> Line:
    """Seconds of an optimizer step by the batch of a process, with the probe's accumulation."""
    return line_through([(one.per_device, one.seconds) for one in probed])


def probed_curve(probed: Sequence[ProbedBatch], card: Gpu, world: int) -> Curve:
    """The peaks on a card by its batch, from probes on cards like it."""
    line, batches = memory_line(probed), (1, 1 + max(one.per_device for one in probed))
    context = context_bytes((card.compute_capability or (0, 0))[0], world)
    peaks = tuple(Peak(context=context, measured=round(line.at(batch))) for batch in batches)
    return Curve(batches, peaks, trainable=0, flops=0, moved=0, moved_once=0)


def describe(probed: Sequence[ProbedBatch]) -> str:
    """The probe in words, to end a sentence with."""
    sizes = sorted(one.per_device for one in probed)
    return f"--probe: real steps of {' and '.join(map(str, sizes))} examples a process"
