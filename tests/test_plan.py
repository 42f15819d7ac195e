"""The batch plan, held against brute force."""

from __future__ import annotations

import pytest
from ddpfix.errors import InputError
from ddpfix.launchers.plan import Plan, Split, solve
from hypothesis import given, settings
from hypothesis import strategies as st

WORLDS = st.integers(1, 16)
CAPS = st.integers(1, 64)
TARGETS = st.integers(8, 1024)


def every_split(world: int, target: int, cap: int) -> list[Split]:
    """All splits up to twice the target and one example more per process: slow and obvious."""
    return [
        Split(batch, count, batch * count * world)
        for batch in range(1, cap + 1)
        for count in range(1, 2 * (target + world) // (batch * world) + 2)
    ]


@settings(max_examples=150, deadline=None)
@given(WORLDS, TARGETS, CAPS)
def test_no_split_found_by_brute_force_is_better(world: int, target: int, cap: int) -> None:
    plan = solve(world, target, cap)
    splits = every_split(world, target, cap)

    assert plan.per_device * plan.accumulation * world == plan.global_batch
    assert 1 <= plan.per_device <= cap
    assert plan.accumulation >= 1
    assert plan.exact == (plan.global_batch == target)

    off = min(abs(split.global_batch - target) for split in splits)
    assert abs(plan.global_batch - target) == off
    assert plan.exact == any(split.global_batch == target for split in splits)
    alike = [split for split in splits if split.global_batch == plan.global_batch]
    assert plan.per_device == max(split.per_device for split in alike)


@settings(max_examples=150, deadline=None)
@given(WORLDS, TARGETS, CAPS)
def test_neighbours_are_the_nearest_on_either_side_and_only_named_when_needed(
    world: int, target: int, cap: int
) -> None:
    plan = solve(world, target, cap)
    reached = {split.global_batch for split in every_split(world, target, cap)}
    if plan.exact:
        assert plan.neighbours == ()
        return
    below = max((size for size in reached if size < target), default=None)
    above = min(size for size in reached if size > target)
    assert [split.global_batch for split in plan.neighbours] == [
        size for size in (below, above) if size is not None
    ]
    for split in plan.neighbours:
        assert str(split.global_batch) in plan.why


@settings(max_examples=100, deadline=None)
@given(WORLDS, TARGETS, st.integers(1, 64), st.integers(1, 32))
def test_a_given_batch_or_accumulation_is_kept_and_the_rest_fitted_to_it(
    world: int, target: int, batch: int, count: int
) -> None:
    kept = solve(world, target, 8, per_device=batch)
    assert kept.per_device == batch
    step = batch * world
    assert abs(kept.global_batch - target) == min(
        abs(step * n - target) for n in range(1, target // step + 3)
    )
    assert solve(world, target, 8, accumulation=count).accumulation == count
    both = solve(world, target, 8, per_device=batch, accumulation=count)
    assert both.global_batch == batch * count * world


# The figures people will check us by: cards, target, cap -> per device, accumulation, global.
KNOWN = {
    "CodeGPT on 2 cards": ((2, 64, 8), (8, 4, 64)),
    "GraphCodeBERT on 1 card": ((1, 64, 16), (16, 4, 64)),
    "GraphCodeBERT on 2 cards": ((2, 64, 16), (16, 2, 64)),
    "GraphCodeBERT on 3 cards, where the shell formula gives 48": ((3, 64, 16), (7, 3, 63)),
    "GraphCodeBERT on 4 cards": ((4, 64, 16), (16, 1, 64)),
    "GraphCodeBERT on 8 cards, where the shell formula accumulates 0": ((8, 64, 16), (8, 1, 64)),
}


@pytest.mark.parametrize(("given_", "expected"), KNOWN.values(), ids=KNOWN.keys())
def test_the_reference_plan_of(given_: tuple[int, int, int], expected: tuple[int, ...]) -> None:
    plan = solve(*given_)
    assert (plan.per_device, plan.accumulation, plan.global_batch) == expected


def test_three_cards_name_both_neighbours_of_64() -> None:
    plan = solve(3, 64, 16)
    assert [split.global_batch for split in plan.neighbours] == [63, 66]
    assert "63 and 66" in plan.why


def test_two_equally_near_give_the_smaller() -> None:
    assert solve(4, 10, 8).global_batch == 8


def test_more_processes_than_examples_says_so_and_gives_each_process_one() -> None:
    plan = solve(16, 8, 4)
    assert (plan.per_device, plan.accumulation, plan.global_batch) == (1, 1, 16)
    assert "8 cannot be shared out among 16 processes" in plan.why
    assert [split.global_batch for split in plan.neighbours] == [16]


def test_the_sentence_of_an_exact_plan_is_its_product() -> None:
    assert solve(2, 16, 8).why == "global batch 16 = 8 per device x 1 accumulated x 2 processes"
    assert solve(1, 16, 16).why.endswith("x 1 process")


def test_a_huge_cap_costs_nothing() -> None:
    plan: Plan = solve(2, 64, 10**12)
    assert (plan.per_device, plan.accumulation) == (32, 1)


@pytest.mark.parametrize(
    "numbers", [(0, 16, 8), (2, 0, 8), (2, 16, 0), (-1, 16, 8), (2, 16, -8)], ids=str
)
def test_a_number_below_one_is_refused_by_name(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(InputError, match="has to be 1 or more"):
        solve(*numbers)


def test_an_accumulation_of_zero_is_refused() -> None:
    with pytest.raises(InputError, match="gradient accumulation is 0"):
        solve(2, 16, 8, accumulation=0)
