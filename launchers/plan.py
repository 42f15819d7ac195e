"""One global batch, exactly: per-device batch x gradient accumulation x world size."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from ..errors import InputError


@attrs.frozen
class Split:
    """One way to share a global batch out, all in examples per optimizer step."""

    per_device: int
    accumulation: int
    global_batch: int


@attrs.frozen
class Plan:
    """What each process is told, and what it adds up to.

    `global_batch` = `per_device` x `accumulation` x `world`, in examples per optimizer step.
    `neighbours` is empty when `exact`; else it holds the nearest splits that can be had below
    and above `target`, or the only one there is. `why` says all this in one sentence.
    """

    per_device: int
    accumulation: int
    world: int
    global_batch: int
    target: int
    exact: bool
    neighbours: tuple[Split, ...]
    why: str


def solve(
    world: int,
    target_global: int,
    cap: int,
    *,
    per_device: int | None = None,
    accumulation: int | None = None,
) -> Plan:
    """The split whose global batch is `target_global`, or is nearest to it.

    Among exact splits the largest per-device batch up to `cap` wins, as it accumulates least. When
    nothing is exact, the nearest global batch wins, the smaller one of two equally near.
    `per_device` (which then may exceed `cap`) and `accumulation` are kept where given. A per-device
    batch or an accumulation of 0 is never returned, so one example per process is the least.

    Raises:
        InputError: a number below 1.

    """
    for name, value in {
        "the number of processes": world,
        "the global batch": target_global,
        "the per-device cap": cap,
        "the per-device batch": per_device,
        "the gradient accumulation": accumulation,
    }.items():
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}, but has to be 1 or more")

    splits = list(_candidates(world, target_global, cap, per_device, accumulation))
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
        why=_sentence(best, world, target_global, neighbours),
    )


def _candidates(
    world: int, target: int, cap: int, per_device: int | None, accumulation: int | None
) -> Iterable[Split]:
    """Every per-device batch with the accumulations just below and just above the target."""
    # One more than the target's share, so that the neighbour above is among them.
    share = -(-target // world) + 1
    batches = [per_device] if per_device else range(1, min(cap, share) + 1)
    for batch in batches:
        below = target // (batch * world)
        for count in [accumulation] if accumulation else {max(1, below), below + 1}:
            yield Split(batch, count, batch * count * world)


def _preference(split: Split, target: int) -> tuple[int, int, int]:
    return abs(split.global_batch - target), split.global_batch, -split.per_device


def _neighbours(splits: list[Split], target: int) -> tuple[Split, ...]:
    """The nearest splits on either side, the one below first."""
    sides = (
        [split for split in splits if split.global_batch < target],
        [split for split in splits if split.global_batch > target],
    )
    return tuple(min(side, key=lambda split: _preference(split, target)) for side in sides if side)


def _sentence(best: Split, world: int, target: int, neighbours: tuple[Split, ...]) -> str:
    sum_ = (
        f"{best.global_batch} = {best.per_device} per device x {best.accumulation} accumulated "
        f"x {_count(world, 'process', 'processes')}"
    )
    if best.global_batch == target:
        return f"global batch {sum_}"
    if world > target:
        return (
            f"global batch {sum_}: {target} cannot be shared out among {world} processes, "
            f"which take at least one example each; use --processes {target} or fewer"
        )
    others = " and ".join(str(split.global_batch) for split in neighbours)
    return (
        f"global batch {sum_}: {target} itself is out of reach here, the nearest that can be had "
        f"{'are' if len(neighbours) > 1 else 'is'} {others}"
    )


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
