"""Predicted peak memory by purpose, and how it grows with the batch."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Any

from ...record import as_dict, fields_of, record, replace, values


@record
class Peak:
    """Bytes on one card at the moment of a step when most is allocated.

    `activations` are saved by the forward for the backward pass, and include the batch itself;
    `workspace` is temporary memory, cuBLAS' included; `buckets` are DDP's copies of the gradients
    for the all-reduce; `fragmentation` is what torch's allocator reserves beyond what is allocated;
    `context` is what the driver, kernels and NCCL take outside of the allocator. `measured` is what
    real steps reserved, of which no parts are known; a prediction has none.
    """

    parameters: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    workspace: int = 0
    buckets: int = 0
    fragmentation: int = 0
    context: int = 0
    measured: int = 0

    @property
    def allocated(self) -> int:
        """What `torch.cuda.max_memory_allocated` would report."""
        return self.reserved - self.fragmentation

    @property
    def reserved(self) -> int:
        """What `torch.cuda.max_memory_reserved` would report."""
        return self.total - self.context

    @property
    def total(self) -> int:
        """What the driver would report for the process."""
        return sum(values(self))


PREDICTED = len(fields_of(Peak)) - 1
"""The numbers of a predicted peak, which is stored without what is measured."""


@record
class Curve:
    """The peaks of one step at some batches, in examples per device, smallest first.

    Allocated memory is the maximum of many sums, each linear in the batch or, for a contrastive
    loss, quadratic: a convex function, so linear interpolation between two batches never
    underestimates it.
    `trainable` are the bytes of all weights that get gradients. `flops` and `moved` are, per
    example of one forward and backward pass, floating-point operations of matrix products, and
    bytes that kernels read and write; `moved_once` are bytes whatever the batch, the optimizer's
    included. `accumulated` are the peaks of a step that starts with gradients already allocated;
    they are empty once `peaks` are those of the right kind. `gathered` is what is
    allocated while a sharded model is whole, as in evaluations; torch gives back what it has
    reserved beside before it fails.
    """

    batches: tuple[int, ...]
    peaks: tuple[Peak, ...]
    trainable: int
    flops: int
    moved: int
    moved_once: int
    accumulated: tuple[Peak, ...] = ()
    gathered: tuple[Peak, ...] = ()

    def at(self, batch: int) -> Peak:
        """The peak at a batch of at least 1, extrapolated beyond the largest batch."""
        index = bisect_left(self.batches, batch)
        if index < len(self.batches) and self.batches[index] == batch:
            return self.peaks[index]
        right = min(max(index, 1), len(self.batches) - 1)
        left = right - 1
        width = self.batches[right] - self.batches[left]
        share = (batch - self.batches[left]) / width
        pairs = zip(values(self.peaks[left]), values(self.peaks[right]), strict=True)
        return Peak(*(max(0, round(low + (high - low) * share)) for low, high in pairs))

    def largest_batch(self, limit: int) -> int:
        """The largest batch whose total is at most `limit` bytes; 0 if even 1 takes more."""
        too_large = 1
        while too_large < 1 << 60 and self.at(too_large).total <= limit:
            too_large *= 2
        return bisect_right(range(1, too_large), limit, key=lambda batch: self.at(batch).total)

    def map_peaks(self, change: Callable[[Peak], Peak]) -> Curve:
        """Apply a function to every peak."""
        return replace(self, peaks=tuple(map(change, self.peaks)))

    def to_json(self) -> dict[str, Any]:
        """The curve as plain data, with a list of numbers for each peak."""
        lists = {
            name: [[*values(peak)][:PREDICTED] for peak in getattr(self, name)]
            for name in _PEAK_FIELDS
        }
        plain = {**as_dict(self), **lists}
        if not self.gathered:
            del plain["gathered"]
        return plain

    @staticmethod
    def from_json(plain: dict[str, Any]) -> Curve:
        """Restore a curve from the data of `to_json`."""
        peaks = {
            name: tuple(Peak(*numbers) for numbers in plain.get(name, ())) for name in _PEAK_FIELDS
        }
        return Curve(**{**plain, **peaks, "batches": tuple(plain["batches"])})


def extrapolate_layers(few: Curve, more: Curve, layers: tuple[int, int, int]) -> Curve:
    """Extrapolate linearly from the curves at layers[0] and layers[1] to layers[2] layers.

    Each layer has the same weights, optimizer state and activations.
    """
    return _on_the_line(few, more, (layers[2] - layers[0]) / (layers[1] - layers[0]))


def between_worlds(few: Curve, more: Curve, worlds: tuple[int, int, int]) -> Curve:
    """The curve of a sharded step on worlds[2] ranks, from those on worlds[0] and worlds[1].

    What a rank holds is a sum of what is divided by the ranks and what is not, but for padding, and
    the peak the maximum of such sums: convex in 1 / ranks, so between the two it is never too low.
    """
    first, last, wanted = (1 / world for world in worlds)
    return _on_the_line(few, more, (wanted - first) / (last - first))


def _on_the_line(few: Curve, more: Curve, share: float) -> Curve:
    """The curve so far from the first of two to the second: 0 is the first, 1 the second."""

    def extend(low: int, high: int) -> int:
        return max(0, round(low + (high - low) * share))

    def peaks(low: tuple[Peak, ...], high: tuple[Peak, ...]) -> tuple[Peak, ...]:
        pairs = [(values(a), values(b)) for a, b in zip(low, high, strict=False)]
        return tuple(Peak(*map(extend, *pair)) for pair in pairs)

    return Curve(
        batches=min(few.batches, more.batches, key=len),
        peaks=peaks(few.peaks, more.peaks),
        trainable=extend(few.trainable, more.trainable),
        flops=extend(few.flops, more.flops),
        moved=extend(few.moved, more.moved),
        moved_once=extend(few.moved_once, more.moved_once),
        accumulated=peaks(few.accumulated, more.accumulated),
        gathered=peaks(few.gathered, more.gathered),
    )


_PEAK_FIELDS = ("peaks", "accumulated", "gathered")


@record
class NoPrediction:
    """Why there is no prediction, as the end of a sentence."""

    because: str
