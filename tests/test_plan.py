"""The batch plan, held against brute force."""

from __future__ import annotations

import pytest
from ddpfix.errors import InputError
from ddpfix.launchers.planning import plan as planning
from ddpfix.launchers.planning.memory_fit import nearest_plans
from ddpfix.launchers.planning.plan import Plan, Split, divide_batch, solve, solve_shared
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


@settings(max_examples=150, deadline=None)
@given(WORLDS, TARGETS, CAPS)
def test_ranks_that_share_reach_every_target_with_the_least_accumulation(
    world: int, target: int, cap: int
) -> None:
    plan = solve_shared(world, target, cap)
    possible = [
        count
        for count in range(1, target + 1)
        if target % count == 0 and max(parts(target // count, world)) <= cap
    ]
    assert plan.exact
    assert plan.global_batch == target == plan.global_micro_batch * plan.accumulation
    assert plan.accumulation == min(possible)
    assert [share.examples for share in plan.shares] == parts(plan.global_micro_batch, world)
    assert plan.per_device == max(parts(plan.global_micro_batch, world))


@settings(max_examples=100, deadline=None)
@given(WORLDS, TARGETS, st.integers(1, 32))
def test_ranks_that_share_keep_a_given_accumulation(world: int, target: int, count: int) -> None:
    plan = solve_shared(world, target, 1, accumulation=count)
    assert plan.accumulation == count
    assert abs(plan.global_batch - target) == min(
        abs(count * together - target) for together in range(1, target + 2)
    )
    assert plan.exact == (target % count == 0) == (plan.neighbours == ())


def parts(together: int, world: int) -> list[int]:
    """Examples dealt one by one, as cards are."""
    dealt = [0] * world
    for example in range(together):
        dealt[example % world] += 1
    return dealt


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-9, 9), min_size=1, max_size=100), WORLDS)
def test_the_mean_of_weighted_means_is_the_mean_of_all(values: list[float], world: int) -> None:
    found = divide_batch(len(values), world)
    assert sum(share.weight for share in found) == pytest.approx(world)
    weighted = [
        share.weight * sum(values[share.rank :: world]) / share.examples
        for share in found
        if share.examples
    ]
    assert sum(weighted) / world == pytest.approx(sum(values) / len(values), abs=1e-12)


def test_three_ranks_share_64_as_22_21_21() -> None:
    plan = solve_shared(3, 64, 22)
    assert [(share.examples, share.weight) for share in plan.shares] == [
        (22, 22 * 3 / 64),
        (21, 21 * 3 / 64),
        (21, 21 * 3 / 64),
    ]
    assert plan.why == (
        "global batch 64 = (22 + 21 + 21) x 1 accumulated on 3 processes, "
        "each loss weighted by its share"
    )
    assert "(11 + 11 + 10) x 2 accumulated" in solve_shared(3, 64, 16).why
    assert "(4 x 11 + 2 x 10) x 1 accumulated" in solve_shared(6, 64, 16).why


def test_a_target_that_only_1_divides_says_who_goes_without() -> None:
    plan = solve_shared(2, 67, 16)
    assert (plan.accumulation, [share.examples for share in plan.shares]) == (67, [1, 0])
    assert "1 of them get no example" in plan.why


def test_an_accumulation_that_does_not_divide_names_both_neighbours() -> None:
    plan = solve_shared(3, 64, 22, accumulation=3)
    assert (plan.global_batch, plan.exact) == (63, False)
    assert "the nearest that can be had are 63 and 66" in plan.why


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
def test_plans_for_the_reference_batches_are_these(
    given_: tuple[int, int, int], expected: tuple[int, ...]
) -> None:
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


def slow_solve(world: int, target: int, cap: int, count: int | None) -> tuple[Split, list[Split]]:
    """The best of all splits, and the nearest ones below and above: slow and obvious."""
    splits = [
        Split(batch, number, batch * number * world)
        for batch in range(1, cap + 1)
        for number in ([count] if count else range(1, target // (batch * world) + 2))
    ]

    def order(split: Split) -> tuple[int, int, int]:
        return abs(split.global_batch - target), split.global_batch, -split.per_device

    sides = (
        [split for split in splits if split.global_batch < target],
        [split for split in splits if split.global_batch > target],
    )
    return min(splits, key=order), [min(side, key=order) for side in sides if side]


@settings(max_examples=200, deadline=None)
@given(WORLDS, st.integers(1, 200), CAPS, st.none() | st.integers(1, 12))
def test_divisors_give_what_all_splits_would(
    world: int, target: int, cap: int, count: int | None
) -> None:
    plan = solve(world, target, cap, accumulation=count)
    best, neighbours = slow_solve(world, target, cap, count)
    assert Split(plan.per_device, plan.accumulation, plan.global_batch) == best
    assert list(plan.neighbours) == ([] if plan.exact else neighbours)


HUGE = [
    (2, 10**9, 10**9, None),
    (3, 10**9, 10**9, None),
    (3, 10**9, 16, None),
    (7, 10**9 + 7, 10**9, None),
    (2, 10**12, 10**12, None),
    (2, 10**12, 10**12, 3),
]


@pytest.mark.parametrize(("world", "target", "cap", "count"), HUGE)
def test_a_huge_batch_is_planned_from_its_divisors(
    monkeypatch: pytest.MonkeyPatch, world: int, target: int, cap: int, count: int | None
) -> None:
    made: list[Split] = []

    def split(*numbers: int) -> Split:
        made.append(Split(*numbers))
        assert len(made) < 100, "it goes through all batches"
        return made[-1]

    monkeypatch.setattr(planning, "Split", split)
    plan = solve(world, target, cap, accumulation=count)
    assert abs(plan.global_batch - target) <= world * (count or 1) / 2
    assert plan.per_device * plan.accumulation * world == plan.global_batch
    shared = solve_shared(world, target, cap, accumulation=count)
    assert abs(shared.global_batch - target) <= (count or 1) / 2


def test_ever_smaller_plans_of_a_huge_batch_are_as_many_as_its_divisors() -> None:
    target = 10**9
    plans = []
    for plan in nearest_plans(lambda cap: solve(2, target, cap), target):
        plans.append(plan)
        assert len(plans) <= 90  # 5 * 10**8 has 9 * 10 divisors
    assert {plan.global_batch for plan in plans} == {target}


@pytest.mark.parametrize(
    "numbers",
    [(2, 10**13, 8), (2, 64, 10**5000), (10**6, 64, 8), (2, 10**5000, 8)],
    ids=["global", "cap", "processes", "digits"],
)
def test_numbers_beyond_any_training_are_refused_in_a_line(numbers: tuple[int, int, int]) -> None:
    for solver in (solve, solve_shared):
        with pytest.raises(
            InputError, match=r"^the [a-z\- ]+ is .{5,14}, but has to be \d+ or less"
        ):
            solver(*numbers)
