"""One global batch, exactly: per-device batch x gradient accumulation x world size."""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import InputError
from ...record import record


@record
class Split:
    """One way to share a global batch out, all in examples per optimizer step."""

    per_device: int
    accumulation: int
    global_batch: int


@record
class Share:
    """A rank's part of a batch that all ranks share, and the weight of its loss.

    The mean over ranks of weight x mean loss of the rank's examples is the mean loss of the batch.
    """

    rank: int
    examples: int
    weight: float


@record
class Plan:
    """What each process is told, and what it adds up to.

    `global_batch` = `per_device` x `accumulation` x `world`, in examples per optimizer step.
    Where ranks share batches out, `shares` says how, `per_device` is the largest share, and
    `global_batch` is the sum of all x `accumulation`.
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
    shares: tuple[Share, ...] = ()

    @property
    def together(self) -> int:
        """Examples that all ranks take together before the gradient is accumulated or stepped."""
        return self.global_batch // self.accumulation


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
    _check(world, target_global, cap, per_device, accumulation)
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


def solve_shared(
    world: int, target_global: int, cap: int, *, accumulation: int | None = None
) -> Plan:
    """The plan for ranks that share each batch out, as scripts of ``patch --exact`` do.

    Shares may differ by one, so that any global batch is exact: the least accumulation that
    divides it and leaves no share above `cap` wins. A given `accumulation` is kept, whatever the
    cap, and the nearest global batch that it divides is taken, the smaller of two equally near.

    Raises:
        InputError: a number below 1.

    """
    _check(world, target_global, cap, None, accumulation)
    if accumulation is None:
        accumulation = next(
            count
            for count in range(max(1, target_global // (cap * world)), target_global + 1)
            if target_global % count == 0 and -(-target_global // (count * world)) <= cap
        )
    below = target_global // accumulation
    splits = [
        Split(-(-together // world), accumulation, together * accumulation)
        for together in (below, below + 1)
        if together
    ]
    best = min(splits, key=lambda split: _preference(split, target_global))
    neighbours = () if best.global_batch == target_global else _neighbours(splits, target_global)
    shared = shares(best.global_batch // accumulation, world)
    return Plan(
        per_device=best.per_device,
        accumulation=accumulation,
        world=world,
        global_batch=best.global_batch,
        target=target_global,
        exact=best.global_batch == target_global,
        neighbours=neighbours,
        why=_shared_sentence(best, shared, target_global, neighbours),
        shares=shared,
    )


def shares(together: int, world: int) -> tuple[Share, ...]:
    """How `world` ranks share a batch of so many examples: evenly, the first ones one more.

    A rank with no example weighs nothing; the weights add up to `world`.
    """
    parts = [len(range(rank, together, world)) for rank in range(world)]
    return tuple(Share(rank, part, part * world / together) for rank, part in enumerate(parts))


def _check(
    world: int, target: int, cap: int, per_device: int | None, accumulation: int | None
) -> None:
    for name, value in {
        "the number of processes": world,
        "the global batch": target,
        "the per-device cap": cap,
        "the per-device batch": per_device,
        "the gradient accumulation": accumulation,
    }.items():
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}, but has to be 1 or more")


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
    return f"global batch {sum_}: {_out_of_reach(target, neighbours)}"


def _shared_sentence(
    best: Split, shared: tuple[Share, ...], target: int, neighbours: tuple[Split, ...]
) -> str:
    parts = " + ".join(_parts(shared))
    processes = _count(len(shared), "process", "processes")
    sum_ = f"{best.global_batch} = ({parts}) x {best.accumulation} accumulated on {processes}"
    said = f"global batch {sum_}, each loss weighted by its share"
    idle = sum(not share.examples for share in shared)
    if idle:
        said += f"; {idle} of them get no example, a --global-batch with more divisors would serve"
    return f"{said}: {_out_of_reach(target, neighbours)}" if neighbours else said


def _parts(shared: tuple[Share, ...]) -> Iterable[str]:
    """The shares one by one, or counted where there are many."""
    sizes = [share.examples for share in shared]
    if len(sizes) <= 4:
        return map(str, sizes)
    return (f"{sizes.count(size)} x {size}" for size in sorted(set(sizes), reverse=True))


def _out_of_reach(target: int, neighbours: tuple[Split, ...]) -> str:
    others = " and ".join(str(split.global_batch) for split in neighbours)
    verb = "are" if len(neighbours) > 1 else "is"
    return f"{target} itself is out of reach here, the nearest that can be had {verb} {others}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
