"""Choose the world sizes and accumulations that a verification runs."""

from __future__ import annotations

from collections.abc import Sequence

from ..script.flags import ScriptFlags


def plan_splits(
    flags: ScriptFlags,
    world_sizes: Sequence[int],
    accumulations: Sequence[int],
    *,
    exact: bool = False,
    accumulation_matters: bool = False,
    all_splits: bool = False,
) -> tuple[list[tuple[int, int]], list[str]]:
    """The groups to run, as (world size, accumulation), and why others were left out.

    The group of one comes first. Accumulations are varied at the largest world size that divides
    the batch, with ``all_splits`` at each. ``exact``: only the accumulation has to divide the
    global batch. ``accumulation_matters``: each accumulation is also run in a group of one, as the
    reference for the others.
    """
    worlds = sorted({1, *world_sizes})
    skipped = []
    total = flags.global_batch

    def fits(world: int, accumulation: int = 1) -> bool:
        return total % (accumulation if exact else world * accumulation) == 0

    for world in worlds:
        if not fits(world):
            skipped.append(f"x{world} was left out: {total} examples do not divide by {world}")
    worlds = [world for world in worlds if fits(world)]
    splits = [(world, 1) for world in worlds]
    for accumulation in sorted({*accumulations} - {1}):
        if flags.accumulation is None:
            skipped.append(
                f"accumulation {accumulation} was left out: the script has no flag for it"
            )
            continue
        fitting = [world for world in worlds if fits(world, accumulation)]
        if fitting:
            chosen = fitting if all_splits else fitting[-1:]
            if accumulation_matters and 1 not in chosen:
                chosen = [1, *chosen]
            splits += [(world, accumulation) for world in chosen]
        else:
            skipped.append(
                f"accumulation {accumulation} was left out: {total} examples do not divide by it"
            )
    return splits, skipped
