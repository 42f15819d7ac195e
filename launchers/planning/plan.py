"""Split a global batch exactly: per-device batch x gradient accumulation x world size."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from functools import cache

from ...errors import InputError
from ...record import record

MOST_EXAMPLES = 10**12
"""In an optimizer step: the divisors of larger numbers take long to find."""
MOST_PROCESSES = 100_000


@record
class Split:
    """One split of a global batch: batch sizes in examples, the global one per optimizer step."""

    per_device: int
    accumulation: int
    global_batch: int


@record
class Share:
    """A rank's part of a batch split over all ranks, and the weight of its loss.

    The mean over ranks of weight x the rank's mean loss is the mean loss of the whole batch.
    """

    rank: int
    examples: int
    weight: float


@record
class Plan:
    """Per-device batch, gradient accumulation and world size, and the global batch they make.

    `global_batch` = `per_device` x `accumulation` x `world`, in examples per optimizer step.
    Where ranks split each batch unevenly, `shares` holds each rank's part, `per_device` is the
    largest of them, and `global_batch` is their sum x `accumulation`.
    `neighbours` is empty when `exact`; otherwise it holds the nearest possible splits below and
    above `target`, or the only one that exists. `why` explains the plan in one sentence.
    """

    per_device: int
    accumulation: int
    world: int
    global_batch: int
    target: int
    exact: bool
    neighbours: tuple[Split, ...]
    why: str
    shares: tuple[Share, ...] = ()

    @property
    def global_micro_batch(self) -> int:
        """Examples in one micro-batch, summed over all ranks."""
        return self.global_batch // self.accumulation


def solve(
    world: int,
    target_global: int,
    cap: int,
    *,
    per_device: int | None = None,
    accumulation: int | None = None,
) -> Plan:
    """Find the split whose global batch equals `target_global`, or comes nearest to it.

    Among exact splits the largest per-device batch up to `cap` wins, as it accumulates least. If
    none is exact, the nearest global batch wins; of two equally near, the smaller. A `per_device`
    (which may exceed `cap`) or `accumulation` passed in is used as it is. The per-device batch and
    the accumulation are never below 1.

    Raises:
        InputError: a number is below 1, or far above what any training has.

    """
    _check_numbers(world, target_global, cap, per_device, accumulation)
    splits = list(_possible_splits(world, target_global, cap, per_device, accumulation))
    best = min(splits, key=lambda split: _preference(split, target_global))
    exact = best.global_batch == target_global
    neighbours = () if exact else _neighbours(splits, target_global)
    return Plan(
        per_device=best.per_device,
        accumulation=best.accumulation,
        world=world,
        global_batch=best.global_batch,
        target=target_global,
        exact=exact,
        neighbours=neighbours,
        why=_explain(best, world, target_global, neighbours),
    )


def solve_shared(
    world: int, target_global: int, cap: int, *, accumulation: int | None = None
) -> Plan:
    """Plan for ranks that split each batch among them, as scripts patched with ``--exact`` do.

    Shares may differ by one, so any global batch can be met exactly: the smallest accumulation
    that divides it and keeps every share within `cap` wins. An `accumulation` passed in is used
    whatever the cap, with the nearest global batch it divides; of two equally near, the smaller.

    Raises:
        InputError: a number is below 1, or far above what any training has.

    """
    _check_numbers(world, target_global, cap, None, accumulation)
    if accumulation is None:
        enough = (
            count
            for count in divisors(target_global)
            if ceil_div(target_global, count * world) <= cap
        )
        accumulation = next(enough)
    below = target_global // accumulation
    splits = [
        Split(ceil_div(micro_batch, world), accumulation, micro_batch * accumulation)
        for micro_batch in (below, below + 1)
        if micro_batch
    ]
    best = min(splits, key=lambda split: _preference(split, target_global))
    neighbours = () if best.global_batch == target_global else _neighbours(splits, target_global)
    rank_shares = divide_batch(best.global_batch // accumulation, world)
    return Plan(
        per_device=best.per_device,
        accumulation=accumulation,
        world=world,
        global_batch=best.global_batch,
        target=target_global,
        exact=best.global_batch == target_global,
        neighbours=neighbours,
        why=_explain_shared(best, rank_shares, target_global, neighbours),
        shares=rank_shares,
    )


def divide_batch(batch: int, world: int) -> tuple[Share, ...]:
    """Split a batch evenly over `world` ranks; the first ranks take the remainder.

    A rank without examples has weight 0; the weights add up to `world`.
    """
    parts = [len(range(rank, batch, world)) for rank in range(world)]
    return tuple(Share(rank, part, part * world / batch) for rank, part in enumerate(parts))


def ceil_div(number: int, divisor: int) -> int:
    """Divide and round up."""
    return -(-number // divisor)


@cache
def divisors(number: int) -> tuple[int, ...]:
    """The divisors of a positive number, ascending, by trial division up to its root."""
    small = [count for count in range(1, math.isqrt(number) + 1) if number % count == 0]
    large = [number // count for count in reversed(small)]
    return (*small, *(large[1:] if small[-1] == large[0] else large))


def _check_numbers(
    world: int, target: int, cap: int, per_device: int | None, accumulation: int | None
) -> None:
    """Refuse numbers below 1, and what no training has: to plan for it could take hours."""
    numbers = {
        "the number of processes": (world, MOST_PROCESSES),
        "the global batch": (target, MOST_EXAMPLES),
        "the per-device cap": (cap, MOST_EXAMPLES),
        "the per-device batch": (per_device, MOST_EXAMPLES),
        "the gradient accumulation": (accumulation, MOST_EXAMPLES),
    }
    for name, (value, most) in numbers.items():
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}, but has to be 1 or more")
        if value is not None and value > most:
            size = f"{value:.0e}" if value < 10**300 else "above 10^300"
            raise InputError(f"{name} is {size}, but has to be {most} or less")


def _possible_splits(
    world: int, target: int, cap: int, per_device: int | None, accumulation: int | None
) -> Iterable[Split]:
    """The best split just below the target and the best just above it, or on it."""
    if accumulation and not per_device:
        nearest = target // (accumulation * world)
        for batch in {min(max(1, nearest), cap), min(nearest + 1, cap)}:
            yield Split(batch, accumulation, batch * accumulation * world)
        return
    if per_device:
        below = target // (per_device * world)
        for count in [accumulation] if accumulation else {max(1, below), below + 1}:
            yield Split(per_device, count, per_device * count * world)
        return
    share = target // world
    for examples in {max(1, share), share + 1}:  # of one process in an optimizer step
        batch = divisors(examples)[bisect_right(divisors(examples), cap) - 1]
        yield Split(batch, examples // batch, examples * world)


def _preference(split: Split, target: int) -> tuple[int, int, int]:
    return abs(split.global_batch - target), split.global_batch, -split.per_device


def _neighbours(splits: list[Split], target: int) -> tuple[Split, ...]:
    """The nearest split below the target and the nearest above, where they exist."""
    sides = (
        [split for split in splits if split.global_batch < target],
        [split for split in splits if split.global_batch > target],
    )
    return tuple(min(side, key=lambda split: _preference(split, target)) for side in sides if side)


def _explain(best: Split, world: int, target: int, neighbours: tuple[Split, ...]) -> str:
    product = (
        f"{best.global_batch} = {best.per_device} per device x {best.accumulation} accumulated "
        f"x {_count(world, 'process', 'processes')}"
    )
    if best.global_batch == target:
        return f"global batch {product}"
    if world > target:
        return (
            f"global batch {product}: {target} cannot be shared out among {world} processes, "
            f"which take at least one example each; use --processes {target} or fewer"
        )
    return f"global batch {product}: {_out_of_reach(target, neighbours)}"


def _explain_shared(
    best: Split, rank_shares: tuple[Share, ...], target: int, neighbours: tuple[Split, ...]
) -> str:
    parts = " + ".join(_share_sizes(rank_shares))
    processes = _count(len(rank_shares), "process", "processes")
    total = f"{best.global_batch} = ({parts}) x {best.accumulation} accumulated on {processes}"
    sentence = f"global batch {total}, each loss weighted by its share"
    idle = sum(not share.examples for share in rank_shares)
    if idle:
        sentence += (
            f"; {idle} of them get no example, a --global-batch with more divisors would serve"
        )
    return f"{sentence}: {_out_of_reach(target, neighbours)}" if neighbours else sentence


def _share_sizes(rank_shares: tuple[Share, ...]) -> Iterable[str]:
    """The sizes one by one, or counted by size if there are more than four."""
    sizes = [share.examples for share in rank_shares]
    if len(sizes) <= 4:
        return map(str, sizes)
    return (f"{sizes.count(size)} x {size}" for size in sorted(set(sizes), reverse=True))


def _out_of_reach(target: int, neighbours: tuple[Split, ...]) -> str:
    others = " and ".join(str(split.global_batch) for split in neighbours)
    verb = "are" if len(neighbours) > 1 else "is"
    return f"{target} itself is out of reach here, the nearest that can be had {verb} {others}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
