"""Torch's caching allocator, replayed: what it reserves for a series of allocations.

The constants and rules are those of c10/cuda/CUDACachingAllocator.cpp (torch 2.4 to 2.13) without
any setting of PYTORCH_CUDA_ALLOC_CONF: sizes are rounded up, small and large blocks come from
pools of their own, the best fitting free block is split, neighbours merge again, and nothing goes
back to the driver.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping

import attrs

MIN_BLOCK = 512  # bytes; all sizes are multiples of it
SMALL = 1 << 20  # the largest block of the small pool
SMALL_SEGMENT = 2 << 20  # what the small pool asks the driver for
MIN_LARGE = 10 << 20  # below it a large block comes out of a segment of
LARGE_SEGMENT = 20 << 20
ROUND_LARGE = 2 << 20  # above it a segment is the size rounded up to a multiple of this


def rounded(size: int) -> int:
    """The bytes that a block of `size` bytes takes at least."""
    return max(MIN_BLOCK, -(-size // MIN_BLOCK) * MIN_BLOCK)


def segment_of(size: int) -> int:
    """The bytes of the segment that the driver is asked for, for a rounded size."""
    if size <= SMALL:
        return SMALL_SEGMENT
    if size < MIN_LARGE:
        return LARGE_SEGMENT
    return -(-size // ROUND_LARGE) * ROUND_LARGE


@attrs.define(eq=False)
class SegmentPart:
    """A part of a segment, with its neighbours in it."""

    address: int
    size: int
    small: bool
    free: bool = False
    before: SegmentPart | None = None
    behind: SegmentPart | None = None


class Allocator:
    """The allocator of one card and one stream; `allocated` and `reserved` are bytes as of now."""

    def __init__(self) -> None:
        self.allocated = self.reserved = 0
        # Free pieces by size, then address, with the pieces beside them: small, and large.
        self._keys: tuple[list[tuple[int, int]], ...] = ([], [])
        self._pieces: dict[int, SegmentPart] = {}
        self._next = 0

    def take(self, size: int) -> SegmentPart:
        """A piece for `size` bytes; nothing may be taken for 0 bytes."""
        size = rounded(size)
        small = size <= SMALL
        keys = self._keys[small]
        place = bisect_left(keys, (size, 0))
        if place < len(keys):
            piece = self._pieces[keys.pop(place)[1]]
            piece.free = False
        else:
            piece = self._segment(segment_of(size), small)
        rest = piece.size - size
        if rest >= MIN_BLOCK if small else rest > SMALL:
            self._split(piece, size)
        self.allocated += piece.size
        return piece

    def give(self, piece: SegmentPart) -> None:
        """Take a piece back, merged with free neighbours."""
        self.allocated -= piece.size
        if piece.before is not None and piece.before.free:
            piece = self._merged(self._claimed(piece.before), piece)
        if piece.behind is not None and piece.behind.free:
            piece = self._merged(piece, self._claimed(piece.behind))
        piece.free = True
        insort(self._keys[piece.small], (piece.size, piece.address))

    def _segment(self, size: int, small: bool) -> SegmentPart:
        piece = SegmentPart(self._next, size, small)
        self._pieces[piece.address] = piece
        self._next += size
        self.reserved += size
        return piece

    def _split(self, piece: SegmentPart, size: int) -> None:
        rest = SegmentPart(
            piece.address + size, piece.size - size, piece.small, True, piece, piece.behind
        )
        if rest.behind is not None:
            rest.behind.before = rest
        piece.behind, piece.size = rest, size
        self._pieces[rest.address] = rest
        insort(self._keys[piece.small], (rest.size, rest.address))

    def _claimed(self, piece: SegmentPart) -> SegmentPart:
        keys = self._keys[piece.small]
        del keys[bisect_left(keys, (piece.size, piece.address))]
        return piece

    def _merged(self, left: SegmentPart, right: SegmentPart) -> SegmentPart:
        left.size += right.size
        left.behind = right.behind
        if right.behind is not None:
            right.behind.before = left
        del self._pieces[right.address]
        return left


def replay(sizes: list[int], events: list[int], counted: int = 0) -> tuple[dict[int, int], int]:
    """The blocks that are taken when most is, with their bytes, and the most that is reserved.

    An event is the number of a block that is taken, or ~number as it is given back. A block of 0
    bytes takes nothing. The most that is taken is looked for from event `counted` on.
    """
    allocator = Allocator()
    held: dict[int, SegmentPart] = {}
    taken: dict[int, int] = {}  # bytes that a block takes as long as it is held
    most, when = 0, len(events)
    for place, event in enumerate(events):
        if event >= 0:
            if sizes[event]:
                held[event] = piece = allocator.take(sizes[event])
                taken[event] = piece.size
                if allocator.allocated > most and place >= counted:
                    most, when = allocator.allocated, place
        elif ~event in held:
            allocator.give(held.pop(~event))
    return _alive(events[: when + 1], taken), allocator.reserved


def exact(sizes: list[int], events: list[int], counted: int = 0) -> dict[int, int]:
    """The blocks that are alive when most is, from event `counted` on, where none is rounded."""
    now = most = when = 0
    for place, event in enumerate(events):
        now += sizes[event] if event >= 0 else -sizes[~event]
        if now > most and place >= counted:
            most, when = now, place
    return _alive(events[: when + 1], dict(enumerate(sizes)))


def _alive(events: list[int], sizes: Mapping[int, int]) -> dict[int, int]:
    """The blocks that are there after these events, with their bytes if `sizes` has them."""
    alive: dict[int, int] = {}
    for event in events:
        if event < 0:
            alive.pop(~event, None)
        elif event in sizes:
            alive[event] = sizes[event]
    return alive
