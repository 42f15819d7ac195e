"""Simulate torch's caching allocator to find what it reserves for a series of allocations.

The constants and rules are those of c10/cuda/CUDACachingAllocator.cpp (torch 2.4 to 2.13) without
any setting of PYTORCH_CUDA_ALLOC_CONF: sizes are rounded up, small and large blocks come from
separate pools, the best fitting free block is split, free neighbours are merged, and nothing is
returned to the driver.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping

import attrs

# In bytes.
MIN_BLOCK = 512  # all block sizes are multiples of it
SMALL = 1 << 20  # the largest block of the small pool
SMALL_SEGMENT = 2 << 20  # the size of the small pool's segments
MIN_LARGE = 10 << 20  # a smaller block of the large pool comes out of a LARGE_SEGMENT
LARGE_SEGMENT = 20 << 20
ROUND_LARGE = 2 << 20  # other segments are the size rounded up to a multiple of this


def block_size(size: int) -> int:
    """The bytes that a block for `size` bytes takes at least."""
    return max(MIN_BLOCK, -(-size // MIN_BLOCK) * MIN_BLOCK)


def segment_size(size: int) -> int:
    """The bytes of a new segment for a block of `size` bytes."""
    if size <= SMALL:
        return SMALL_SEGMENT
    if size < MIN_LARGE:
        return LARGE_SEGMENT
    return -(-size // ROUND_LARGE) * ROUND_LARGE


@attrs.define(eq=False)
class SegmentPart:
    """A part of a segment, linked to its neighbours in the segment."""

    address: int
    size: int
    small: bool
    free: bool = False
    previous: SegmentPart | None = None
    next: SegmentPart | None = None


class Allocator:
    """The allocator of one card and one stream; `allocated` and `reserved` are current bytes."""

    def __init__(self) -> None:
        self.allocated = self.reserved = 0
        # (size, address) of the free parts, sorted: those of the large pool, then of the small one.
        self._free: tuple[list[tuple[int, int]], ...] = ([], [])
        self._parts: dict[int, SegmentPart] = {}  # by address
        self._next_address = 0

    def allocate(self, size: int) -> SegmentPart:
        """Allocate at least `size` bytes, which must be more than 0."""
        size = block_size(size)
        small = size <= SMALL
        free = self._free[small]
        index = bisect_left(free, (size, 0))
        if index < len(free):
            part = self._parts[free.pop(index)[1]]
            part.free = False
        else:
            part = self._new_segment(segment_size(size), small)
        rest = part.size - size
        if rest >= MIN_BLOCK if small else rest > SMALL:
            self._split(part, size)
        self.allocated += part.size
        return part

    def free(self, part: SegmentPart) -> None:
        """Free a part, and merge it with free neighbours."""
        self.allocated -= part.size
        if part.previous is not None and part.previous.free:
            part = self._merge(self._unlist(part.previous), part)
        if part.next is not None and part.next.free:
            part = self._merge(part, self._unlist(part.next))
        part.free = True
        insort(self._free[part.small], (part.size, part.address))

    def _new_segment(self, size: int, small: bool) -> SegmentPart:
        part = SegmentPart(self._next_address, size, small)
        self._parts[part.address] = part
        self._next_address += size
        self.reserved += size
        return part

    def _split(self, part: SegmentPart, size: int) -> None:
        """Shrink a part to `size`; what is left of it becomes a free part."""
        rest = SegmentPart(part.address + size, part.size - size, part.small, True, part, part.next)
        if rest.next is not None:
            rest.next.previous = rest
        part.next, part.size = rest, size
        self._parts[rest.address] = rest
        insort(self._free[part.small], (rest.size, rest.address))

    def _unlist(self, part: SegmentPart) -> SegmentPart:
        """Remove a part from the list of free ones."""
        free = self._free[part.small]
        del free[bisect_left(free, (part.size, part.address))]
        return part

    def _merge(self, left: SegmentPart, right: SegmentPart) -> SegmentPart:
        left.size += right.size
        left.next = right.next
        if right.next is not None:
            right.next.previous = left
        del self._parts[right.address]
        return left


def replay(sizes: list[int], events: list[int], counted: int = 0) -> tuple[dict[int, int], int]:
    """Replay allocations: the blocks at the peak, with their bytes, and the bytes reserved.

    An event is the number of a block as it is allocated, or ~number as it is freed. A block of 0
    bytes takes no memory. The peak is the largest sum of allocated bytes from event `counted` on.
    """
    allocator = Allocator()
    parts: dict[int, SegmentPart] = {}
    block_sizes: dict[int, int] = {}
    peak, peak_index = 0, len(events)
    for index, event in enumerate(events):
        if event >= 0:
            if sizes[event]:
                parts[event] = part = allocator.allocate(sizes[event])
                block_sizes[event] = part.size
                if allocator.allocated > peak and index >= counted:
                    peak, peak_index = allocator.allocated, index
        elif ~event in parts:
            allocator.free(parts.pop(~event))
    return alive_after(events[: peak_index + 1], block_sizes), allocator.reserved


def replay_exactly(sizes: list[int], events: list[int], counted: int = 0) -> dict[int, int]:
    """The blocks at the peak with their bytes, as in `replay` but without rounding of sizes."""
    allocated = peak = peak_index = 0
    for index, event in enumerate(events):
        allocated += sizes[event] if event >= 0 else -sizes[~event]
        if allocated > peak and index >= counted:
            peak, peak_index = allocated, index
    return alive_after(events[: peak_index + 1], dict(enumerate(sizes)))


def alive_after(events: list[int], sizes: Mapping[int, int]) -> dict[int, int]:
    """The blocks of `sizes` that are allocated after these events, with their bytes."""
    alive: dict[int, int] = {}
    for event in events:
        if event < 0:
            alive.pop(~event, None)
        elif event in sizes:
            alive[event] = sizes[event]
    return alive
