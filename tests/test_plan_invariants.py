"""What is true of every plan, whatever the cards, and a few plans worked out by hand."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from attrs import frozen
from ddpfix.errors import InputError
from ddpfix.launchers.gpus.select import Devices
from ddpfix.launchers.gpus.simulated import simulate_inventory
from ddpfix.launchers.memory.step import FSDP_FLAG
from ddpfix.launchers.planning.planner import FullPlan, PlanRequest, make_plan
from ddpfix.launchers.running.failure import RunFailure
from ddpfix.launchers.running.oom_ladder import CHECKPOINTING, LaunchSettings, next_rung
from ddpfix.recipes.load import load, recipe_names
from ddpfix.recipes.model import Recipe
from ddpfix.record import as_dict
from golden_plans import INVENTORIES, laid_out, path_of

GIB = 1 << 30
# Among these every card computes in bfloat16, so that more memory can only help.
BY_MEMORY = ("RTX 4090", "A100 40GB", "RTX 6000 Ada", "A100 80GB", "H200")


@frozen
class Case:
    """A recipe's plan on an inventory, or why there is none."""

    recipe: Recipe
    kinds: str
    cards: Devices
    found: FullPlan | str

    @property
    def name(self) -> str:
        return f"{self.recipe.name} on {self.kinds}"


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    """Each recipe on each inventory."""
    folder = tmp_path_factory.mktemp("plans")
    with mock.patch.dict("os.environ", {"XDG_STATE_HOME": str(folder)}):
        return list(cases(folder))


def cases(folder: Path) -> Iterator[Case]:
    for recipe in map(load, recipe_names()):
        script = laid_out(recipe, folder / recipe.name)
        for kinds in INVENTORIES:
            gpus = simulate_inventory(kinds.split(",")).gpus
            cards = Devices(len(gpus), gpus, "")
            try:
                found: FullPlan | str = make_plan(PlanRequest(recipe, script), cards)
            except InputError as error:
                found = str(error)
            yield Case(recipe, kinds, cards, found)


def plans(every: list[Case]) -> Iterator[tuple[Case, FullPlan]]:
    some = [(case, case.found) for case in every if isinstance(case.found, FullPlan)]
    assert len(some) > len(every) / 2
    yield from some


def test_per_device_batch_times_accumulation_times_ranks_is_the_global_batch(
    every: list[Case],
) -> None:
    for case, found in plans(every):
        plan = found.plan
        # "2x A100 80GB,1x T4" is three cards, and a rank for each.
        ranks = sum(int(part.split("x")[0]) for part in case.kinds.split(","))
        assert plan.world == ranks, case.name
        assert plan.per_device >= 1, case.name
        assert plan.accumulation >= 1, case.name
        assert plan.per_device * plan.accumulation * ranks == plan.global_batch, case.name


def test_the_global_batch_is_the_one_asked_for_or_the_nearest_and_the_plan_says_so(
    every: list[Case],
) -> None:
    missed = 0
    for case, found in plans(every):
        plan, target = found.plan, case.recipe.batch.global_batch
        # With one example per device and enough accumulation, every multiple of the ranks is there.
        below = max(1, target // plan.world) * plan.world
        distance = min(abs(target - below), abs(below + plan.world - target))
        assert plan.target == target, case.name
        assert abs(plan.global_batch - target) == distance, case.name
        assert plan.exact is (distance == 0), case.name
        assert ("out of reach" in plan.why or "cannot be shared" in plan.why) is not plan.exact
        assert f"global batch {plan.global_batch} = " in plan.why, case.name
        missed += not plan.exact
    assert missed > 10


def test_the_predicted_peak_leaves_the_margin_on_the_smallest_card(every: list[Case]) -> None:
    counted = 0
    for case, found in plans(every):
        if found.memory_fit is None:
            continue
        counted += 1
        peak = found.memory_fit.candidate.peak
        assert sum(as_dict(peak).values()) == peak.total, case.name
        assert peak.total <= 0.92 * min(gpu.memory_free for gpu in case.cards.cards), case.name
        assert found.memory_fit.candidate.plan == found.plan, case.name
    assert counted > 100


def test_where_there_is_no_plan_even_the_least_one_does_not_fit_and_a_way_out_is_told(
    every: list[Case],
) -> None:
    refused = [(case, case.found) for case in every if isinstance(case.found, str)]
    assert refused
    for case, said in refused:
        numbers = re.search(r"takes ([\d.]+) GiB; ([\d.]+) GiB may be used, 92 %", said)
        assert numbers, said
        free = min(gpu.memory_free for gpu in case.cards.cards) / GIB
        assert float(numbers[1]) > float(numbers[2]) == pytest.approx(0.92 * free, abs=0.06)
        assert "What would fit: " in said, case.name


def test_more_memory_never_makes_for_a_smaller_batch(every: list[Case]) -> None:
    at = {(case.recipe.name, case.kinds): case.found for case in every}
    for recipe in recipe_names():
        for count in range(1, 9):
            row = [at[recipe, f"{count}x {kind}"] for kind in BY_MEMORY]
            sizes = [one.plan.per_device if isinstance(one, FullPlan) else 0 for one in row]
            assert sizes == sorted(sizes), (recipe, count)


def test_the_horizon_is_all_examples_in_whole_optimizer_steps(every: list[Case]) -> None:
    counted = 0
    for case, found in plans(every):
        horizon = found.settings.horizon
        if horizon is None:
            continue
        counted += 1
        plan = found.plan
        # A rank's share, in micro-batches, in steps: the last of each may be short.
        share = math.ceil(horizon.examples / plan.world)
        steps = math.ceil(math.ceil(share / plan.per_device) / plan.accumulation)
        assert horizon.steps_per_epoch == steps, case.name
        assert horizon.steps == horizon.epochs * horizon.steps_per_epoch, case.name
    assert counted > 100


@pytest.mark.parametrize("name", recipe_names())
def test_the_script_is_told_what_the_plan_says(name: str) -> None:
    recipe = load(name)
    blocks = re.split(r"\n\n(?=\dx )", path_of(name).read_text())
    told = [block for block in blocks if "\n\nenv\n" in block]
    assert told
    for block in told:
        numbers = re.search(r"= (\d+) per device x (\d+) accumulated x (\d+) process", block)
        assert numbers, block
        batch, accumulation, world = numbers.groups()
        for flag, value in (
            (recipe.flags.train_batch, batch),
            (recipe.flags.accumulation, accumulation),
        ):
            assert re.search(rf"^{flag}[ =]{value}$", block, re.MULTILINE), block
        assert ("\n--num_processes" in block) is (world != "1")
        cards = ",".join(map(str, range(int(world))))
        assert f"\nCUDA_VISIBLE_DEVICES={cards}\n" in block


@pytest.mark.parametrize("world", [1, 2, 3, 8])
@pytest.mark.parametrize("name", recipe_names())
def test_rungs_first_accumulate_then_checkpoint_and_only_then_train_something_else(
    name: str, world: int, tmp_path: Path
) -> None:
    recipe = load(name)
    plan = PlanRequest(recipe, laid_out(recipe, tmp_path)).plan(world)
    declared = frozenset({CHECKPOINTING, FSDP_FLAG, *recipe.out_of_memory})
    setting = LaunchSettings(recipe, plan, (), declared)
    kinds, numbers = [], recipe.out_of_memory
    while step := next_rung(setting, RunFailure(out_of_memory=True)):
        was, setting = setting, step.setting
        assert setting.plan.global_batch == plan.global_batch
        if step.restarts_training:
            kinds.append("another training")
            less = [flag for flag in numbers if setting.value(flag) != was.value(flag)]
            assert len(less) == 1
            assert numbers[less[0]] <= int(setting.value(less[0]) or 0)
            assert int(setting.value(less[0]) or 0) < int(was.value(less[0]) or 0)
        elif CHECKPOINTING in setting.added_flags and CHECKPOINTING not in was.added_flags:
            kinds.append("checkpointing")
        elif FSDP_FLAG in setting.added_flags and FSDP_FLAG not in was.added_flags:
            kinds.append("shards")
        else:
            kinds.append("accumulation")
            assert setting.plan.per_device <= was.plan.per_device / 2
    order = ["accumulation", "checkpointing", "shards", "another training"]
    assert kinds == sorted(kinds, key=order.index)
    assert kinds.count("checkpointing") <= 1
    assert kinds.count("shards") == (world > 1)
    assert setting.plan.per_device == 1 or recipe.flags.accumulation is None


# A recipe on cards -> per device, accumulated, global batch; steps an epoch, steps in all.
BY_HAND = [
    # 16 examples on one card. A tenth of 10000 lines are 1000 examples: 1000 / 16 = 62.5, so 63
    # steps, twice.
    ("codebert-bigclonebench", "1x RTX 6000 Ada", (16, 1, 16), (63, 126)),
    # 16 / 2 = 8 each.
    ("codebert-bigclonebench", "2x RTX 6000 Ada", (8, 1, 16), (63, 126)),
    # 16 / 3 is not whole: 15 = 5 x 3 is nearer than 18. 1000 / 15 = 66.7, so 67, twice.
    ("codebert-bigclonebench", "3x RTX 6000 Ada", (5, 1, 15), (67, 134)),
    # 16 / 8 = 2 each.
    ("codebert-bigclonebench", "8x H100", (2, 1, 16), (63, 126)),
    # 384 = 192 x 2 on one card. 10000 / 384 = 26.04, so 27, three times.
    ("anchor-xlmr-xl", "1x RTX 6000 Ada", (192, 2, 384), (27, 81)),
]


@pytest.mark.parametrize(
    ("name", "kinds", "sizes", "steps"), BY_HAND, ids=[f"{row[0]} on {row[1]}" for row in BY_HAND]
)
def test_these_plans_are_what_they_are_by_hand(
    every: list[Case],
    name: str,
    kinds: str,
    sizes: tuple[int, int, int],
    steps: tuple[int, int],
) -> None:
    [case] = [case for case in every if (case.recipe.name, case.kinds) == (name, kinds)]
    assert isinstance(case.found, FullPlan)
    plan, horizon = case.found.plan, case.found.settings.horizon
    assert (plan.per_device, plan.accumulation, plan.global_batch) == sizes
    assert horizon is not None
    assert (horizon.steps_per_epoch, horizon.steps) == steps


def test_the_memory_of_codebert_is_what_its_weights_take_by_hand(every: list[Case]) -> None:
    [case] = [
        case
        for case in every
        if (case.recipe.name, case.kinds) == ("codebert-bigclonebench", "1x RTX 6000 Ada")
    ]
    assert isinstance(case.found, FullPlan)
    assert case.found.memory_fit is not None
    peak = case.found.memory_fit.candidate.peak
    # RoBERTa's base model: (50265 + 514 + 1 + 2) x 768 of embeddings and their norm, 12 layers of
    # 4 x (768 x 768 + 768) + 2 x 768 x 3072 + 3072 + 768 + 4 x 768, and a head of about 0.6 or
    # 1.2 million: 125 million of 4 bytes are 0.466 GiB.
    embeddings = (50265 + 514 + 1 + 2) * 768
    layer = 4 * (768 * 768 + 768) + 2 * 768 * 3072 + 3072 + 768 + 4 * 768
    weights = 4 * (embeddings + 12 * layer)
    assert peak.parameters == pytest.approx(weights, rel=0.02)
    assert peak.optimizer == pytest.approx(2 * weights, rel=0.02)  # AdamW's two moments
