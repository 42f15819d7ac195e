"""What is answered: bytes at the peak by what they are for, and how they grow with the batch."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Any

from ...record import as_dict, changed, record, values


@record
class Peak:
    """Bytes on one card at the moment of a step when most is allocated.

    `activations` are kept from the forward for the backward pass, with the batch itself;
    `workspace` is what lives for the moment, that of cuBLAS included; `buckets` are copies of the
    gradients that ranks reduce; `fragmentation` is what torch's allocator holds beyond what is
    allocated; `context` what the driver, kernels and NCCL take outside of it.
    """

    parameters: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    workspace: int = 0
    buckets: int = 0
    fragmentation: int = 0
    context: int = 0

    @property
    def allocated(self) -> int:
        """What `torch.cuda.max_memory_allocated` would say."""
        return self.reserved - self.fragmentation

    @property
    def reserved(self) -> int:
        """What `torch.cuda.max_memory_reserved` would say."""
        return self.total - self.context

    @property
    def total(self) -> int:
        """What the driver would say that the process uses."""
        return sum(values(self))


@record
class Curve:
    """The peaks of one step at some batches, in examples per device, smallest first.

    What is allocated is the largest of many sums, each of them linear in the batch or, where all
    examples meet, quadratic: a convex function. Between two batches the straight line is above it.
    `trainable` is the bytes of all weights that get gradients. `flops` and `moved` are, per
    example of one forward and backward pass, floating-point operations of products, and bytes that
    kernels read and write; `moved_once` are those whatever the batch, with the optimizer's.
    `accumulated` are the peaks of a step whose gradients were there before, as long as it is not
    yet asked which of the two is meant.
    """

    batches: tuple[int, ...]
    peaks: tuple[Peak, ...]
    trainable: int
    flops: int
    moved: int
    moved_once: int
    accumulated: tuple[Peak, ...] = ()

    def at(self, batch: int) -> Peak:
        """The peak at a batch of at least 1; beyond the largest batch, the last line goes on."""
        place = bisect_left(self.batches, batch)
        if place < len(self.batches) and self.batches[place] == batch:
            return self.peaks[place]
        right = min(max(place, 1), len(self.batches) - 1)
        left = right - 1
        width = self.batches[right] - self.batches[left]
        share = (batch - self.batches[left]) / width
        pairs = zip(values(self.peaks[left]), values(self.peaks[right]), strict=True)
        return Peak(*(max(0, round(low + (high - low) * share)) for low, high in pairs))

    def largest(self, limit: int) -> int:
        """The largest batch whose total is at most `limit` bytes; 0 where 1 is too much."""
        most = 1
        while self.at(most).total <= limit:
            most *= 2
        return bisect_right(range(1, most), limit, key=lambda batch: self.at(batch).total)

    def mapped(self, change: Callable[[Peak], Peak]) -> Curve:
        """The same with every peak changed."""
        return changed(self, peaks=tuple(map(change, self.peaks)))

    def to_json(self) -> dict[str, Any]:
        """The curve as plain data, a list of numbers for a peak."""
        lists = {name: [*map(values, getattr(self, name))] for name in _PEAKS}
        return {**as_dict(self), **lists}

    @staticmethod
    def from_json(plain: dict[str, Any]) -> Curve:
        """The curve that `to_json` told of."""
        peaks = {name: tuple(Peak(*numbers) for numbers in plain[name]) for name in _PEAKS}
        return Curve(**{**plain, **peaks, "batches": tuple(plain["batches"])})


def extended(few: Curve, more: Curve, layers: tuple[int, int, int]) -> Curve:
    """The curve at layers[2] layers, from those at layers[0] and layers[1] in a straight line.

    Layers are alike: each has its weights, its moments and what it keeps.
    """
    share = (layers[2] - layers[0]) / (layers[1] - layers[0])

    def on(low: int, high: int) -> int:
        return max(0, round(low + (high - low) * share))

    def peaks(low: tuple[Peak, ...], high: tuple[Peak, ...]) -> tuple[Peak, ...]:
        pairs = [(values(a), values(b)) for a, b in zip(low, high, strict=False)]
        return tuple(Peak(*map(on, *pair)) for pair in pairs)

    return Curve(
        min(few.batches, more.batches, key=len),
        peaks(few.peaks, more.peaks),
        on(few.trainable, more.trainable),
        on(few.flops, more.flops),
        on(few.moved, more.moved),
        on(few.moved_once, more.moved_once),
        peaks(few.accumulated, more.accumulated),
    )


_PEAKS = ("peaks", "accumulated")


@record
class NoPrediction:
    """Why there is no prediction, as the end of a sentence."""

    because: str
