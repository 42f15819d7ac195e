"""Plans by prediction: what is taken, what is said of the rest, and how long it takes."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest
from checkout import ROOT
from command_line import run
from ddpfix.errors import InputError
from ddpfix.launchers.gpus.model import Link
from ddpfix.launchers.gpus.select import Devices
from ddpfix.launchers.gpus.simulated import simulate_inventory
from ddpfix.launchers.memory.peak import Curve, NoPrediction, Peak
from ddpfix.launchers.memory.step import TrainingStep
from ddpfix.launchers.planning import memory_fit as fitting
from ddpfix.launchers.planning.candidates import MARGIN, FitResult
from ddpfix.launchers.planning.memory_fit import nearest_plans
from ddpfix.launchers.planning.plan import solve, solve_shared
from ddpfix.launchers.planning.planner import FullPlan, PlanRequest, make_plan
from ddpfix.launchers.planning.roofline import (
    BACKWARD_SHARE,
    EFFICIENCY,
    LINK_EFFICIENCY,
    expected_step_time,
)
from ddpfix.launchers.planning.throughput import Throughput
from ddpfix.launchers.planning.time_estimate import estimate, format_duration
from ddpfix.launchers.planning.training_steps import Horizon
from ddpfix.launchers.running.throughput_log import step_seconds
from ddpfix.recipes.load import load, recipe_names
from ddpfix.recipes.model import Recipe
from ddpfix.recipes.network import Network
from ddpfix.record import replace, values
from hypothesis import given, settings
from hypothesis import strategies as st

MIB, GIB = 1 << 20, 1 << 30
RECIPE = load("codegpt-bigclonebench")
FLAGS = "p.add_argument('--gradient_checkpointing'); p.add_argument('--amp')"


def predicted(fixed: float, each: float) -> Curve:
    """A curve of so many GiB, and so many more for each example."""
    batches = (1, 1024)
    peaks = [
        Peak(parameters=int(fixed * GIB), activations=int(batch * each * GIB)) for batch in batches
    ]
    return Curve(
        batches, tuple(peaks), trainable=500 * MIB, flops=10**12, moved=10**9, moved_once=0
    )


@pytest.fixture
def predictions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Curve]:
    """What is predicted, in the place of a trace: 4 GiB and 5 more for each example.

    With checkpointing an example takes 1, with adapters everything half.
    """
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    known = {"plain": predicted(4, 5), "checkpointed": predicted(4, 1), "adapted": predicted(2, 2)}

    def predict(steps: Sequence[TrainingStep], state: Path) -> list[Curve]:
        return [
            known["adapted" if one.lora_rank else "checkpointed" if one.checkpointing else "plain"]
            for one in steps
        ]

    monkeypatch.setattr(fitting, "predict", predict)
    monkeypatch.setattr("ddpfix.launchers.planning.suggestions.predict", predict)
    return known


def on(*cards: str) -> Devices:
    gpus = simulate_inventory(cards).gpus
    return Devices(len(gpus), gpus, "")


def ask(folder: Path, text: str = "", recipe: Recipe = RECIPE, **asked: object) -> PlanRequest:
    script = folder / "run.py"
    script.write_text(text)
    return PlanRequest(recipe, script, **asked)  # type: ignore[arg-type]


def fitted(found: FullPlan) -> FitResult:
    assert found.memory_fit is not None
    return found.memory_fit


# Cards, the recipe's cap and the card it is known from -> per device, accumulation.
# 8 examples take 44 GiB, 4 take 24, 2 take 14.
TAKEN = {
    "the recipe's cap where it leaves the margin": (("1x RTX 6000 Ada", 8, 48), (8, 8)),
    "less where it does not": (("1x A100 40GB", 8, 48), (4, 16)),
    "less still on a small card": (("1x T4", 8, 48), (1, 64)),
    "more than the cap on a larger card than it is known from": (("1x H200", 8, 48), (16, 4)),
    "no more than the cap on a card of the size it is known from": (("1x H200", 8, 141), (8, 8)),
    "what the smallest of mixed cards takes": (("1x H200,1x A100 40GB", 8, 48), (4, 8)),
    "what makes the batch as nearly as any": (("3x A100 40GB", 8, 48), (3, 7)),
}


@pytest.mark.parametrize(("given_", "expected_"), TAKEN.values(), ids=TAKEN.keys())
def test_a_plan_takes_the_largest_batch_that_leaves_the_margin(
    given_: tuple[str, int, int],
    expected_: tuple[int, int],
    predictions: dict[str, Curve],
    tmp_path: Path,
) -> None:
    cards, cap, memory = given_
    sizes = replace(RECIPE.batch, per_device_cap=cap, cap_memory=memory)
    recipe = replace(RECIPE, batch=sizes)
    found = make_plan(ask(tmp_path, recipe=recipe), on(*cards.split(",")))
    assert (found.plan.per_device, found.plan.accumulation) == expected_
    way = fitted(found).candidate
    assert way.plan == found.plan
    assert way.peak.total <= way.limit == int(way.free * MARGIN)


def test_what_else_there_is_is_told_with_what_speaks_for_it(
    predictions: dict[str, Curve], tmp_path: Path
) -> None:
    predictions["plain"] = predicted(4, 9.3)  # 4 examples: 41.2 of 48 GiB; 2: 22.6
    sizes = replace(RECIPE.batch, cap_memory=16)
    found = make_plan(ask(tmp_path, recipe=replace(RECIPE, batch=sizes)), on("1x A100 40GB"))
    assert found.plan.per_device == 2
    tight, safe, *rejected = found.alternatives
    assert "or 1 per device x 64 accumulated: 13.3 GiB, " in " ".join((tight, safe))
    assert any(
        line.startswith("not 8 per device x 8 accumulated: 78.4 GiB of ") for line in rejected
    )


def test_checkpointing_is_switched_on_only_where_nothing_fits_without(
    predictions: dict[str, Curve], tmp_path: Path
) -> None:
    predictions["plain"] = predicted(4, 12)
    bare = make_plan(ask(tmp_path, FLAGS), on("1x A100 40GB"))
    assert (bare.plan.per_device, "--gradient_checkpointing" in bare.settings.arguments) == (
        2,
        False,
    )
    helped = make_plan(ask(tmp_path, FLAGS), on("1x T4"))
    assert helped.plan.per_device == 8
    assert helped.settings.arguments["--gradient_checkpointing"] is None
    assert "of what is free on a card with --gradient_checkpointing (" in helped.summary[2]


def test_where_examples_meet_their_number_is_kept_as_far_as_memory_allows(
    predictions: dict[str, Curve], tmp_path: Path
) -> None:
    assert RECIPE.model is not None
    model = replace(RECIPE.model, head="anchor", projection=8)
    recipe = replace(RECIPE, model=model)
    assert make_plan(ask(tmp_path, recipe=recipe), on("1x H200")).plan.per_device == 8
    helped = make_plan(ask(tmp_path, FLAGS, recipe), on("1x A100 40GB"))
    assert (helped.plan.per_device, len(fitted(helped).candidate.changed_arguments)) == (8, 1)
    fewer = make_plan(ask(tmp_path, recipe=recipe), on("1x A100 40GB"))
    assert fewer.plan.per_device == 4
    assert "where 4 examples meet and not 8, which is another training" in " ".join(fewer.summary)
    assert "another training" not in " ".join(helped.summary)


def test_where_nothing_fits_it_is_refused_with_what_would_make_it_fit(
    predictions: dict[str, Curve], tmp_path: Path
) -> None:
    predictions["plain"] = predicted(4, 12)
    with pytest.raises(InputError) as refused:
        make_plan(ask(tmp_path), on("1x T4"))
    words = str(refused.value)
    assert "\n" not in words
    assert "1 per device x 64 accumulated takes 16.0 GiB; 13.8 GiB may be used" in words
    assert (
        "--gradient_checkpointing, which `ddpfix patch --with checkpointing` adds: 5.0 GiB" in words
    )
    assert "`ddpfix patch --with lora` adds, another training: 4.0 GiB" in words
    assert "a card of 20 GiB, such as RTX A4500: 16.0 GiB" in words
    predictions["plain"] = predicted(14, 2)  # of which no change makes fewer
    with pytest.raises(
        InputError, match=r"What would fit: a card of 20 GiB, such as RTX A4500: 16.0 GiB"
    ):
        make_plan(ask(tmp_path), on("1x T4"))
    taken = make_plan(ask(tmp_path, per_device=1), on("1x T4"))
    assert "too much: it may run out of memory" in taken.summary[2]


def test_the_users_own_batch_is_kept_whatever_is_predicted(
    predictions: dict[str, Curve], tmp_path: Path
) -> None:
    own = ask(tmp_path, extra=("--train_batch_size", "16"))
    assert make_plan(own, on("1x A100 40GB")).plan.per_device == 16
    assert make_plan(ask(tmp_path, per_device=16), on("1x A100 40GB")).plan.per_device == 16


def test_the_users_own_batch_is_a_whole_steps_where_the_script_divides_it(
    predictions: dict[str, Curve], tmp_path: Path
) -> None:
    text = "size = args.train_batch_size // args.gradient_accumulation_steps\n"
    flags = ("--train_batch_size", "16", "--gradient_accumulation_steps", "4")
    plan = ask(tmp_path, text, extra=flags).plan(2)
    assert (plan.per_device, plan.accumulation) == (4, 4)
    plan = ask(tmp_path, text, extra=flags[:2]).plan(2)
    assert (plan.per_device, plan.accumulation) == (16, 1)
    with pytest.raises(InputError, match=r"--train_batch_size 16: .* divides it by .* 3, which"):
        ask(tmp_path, text, extra=(*flags[:3], "3")).plan(2)


# What stands in the way of a prediction -> the words for it.
UNKNOWN = {
    "the recipe tells no model": (None, (), "the recipe codegpt-bigclonebench does not tell"),
    "the user's precision is none": (RECIPE.model, ("--amp", "fp8"), "the arguments tell no step"),
}


@pytest.mark.parametrize(("model", "extra", "words"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_the_cap_is_taken_and_it_is_said_where(
    model: Network | None,
    extra: tuple[str, ...],
    words: str,
    predictions: dict[str, Curve],
    tmp_path: Path,
) -> None:
    recipe = replace(RECIPE, model=model, sources={})
    found = make_plan(ask(tmp_path, recipe=recipe, extra=extra), on("2x T4"))
    assert (found.plan.per_device, found.plan.accumulation) == (8, 4)
    assert words in found.why_unpredicted
    assert f"memory is not predicted: {found.why_unpredicted}" in found.summary
    assert found.facts()["memory"] == {"unknown": found.why_unpredicted}


def test_what_cannot_be_traced_is_said_too(
    monkeypatch: pytest.MonkeyPatch, predictions: dict[str, Curve], tmp_path: Path
) -> None:
    no_torch = NoPrediction("No module named 'torch'")
    monkeypatch.setattr(fitting, "predict", lambda steps, state: [no_torch] * len(steps))
    found = make_plan(ask(tmp_path), on("2x T4"))
    assert (found.plan.per_device, found.why_unpredicted) == (8, no_torch.because)


def test_the_parts_of_the_peak_add_up_in_what_is_told(
    predictions: dict[str, Curve], tmp_path: Path
) -> None:
    facts = make_plan(ask(tmp_path), on("2x A100 40GB")).facts()["memory"]
    total = facts["peak"].pop("total")
    assert sum(facts["peak"].values()) == total <= facts["limit"] <= facts["free"]
    json.dumps(facts)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 8), st.integers(8, 512), st.integers(1, 64), st.booleans())
def test_all_splits_make_the_batch_as_nearly_and_the_first_takes_most(
    world: int, target: int, most: int, shared: bool
) -> None:
    solver = solve_shared if shared else solve
    found = [*nearest_plans(lambda cap: solver(world, target, cap), most)]
    assert len({abs(plan.global_batch - target) for plan in found}) == 1
    batches = [plan.per_device for plan in found]
    assert batches == sorted(set(batches), reverse=True)
    assert 1 == batches[-1] <= batches[0] <= most


@settings(max_examples=40, deadline=None)
@given(st.floats(0.5, 20), st.floats(0.01, 5), st.integers(1, 8), st.integers(16, 200))
def test_more_memory_never_makes_a_smaller_batch_and_what_is_taken_fits(
    fixed: float, each: float, world: int, size: int
) -> None:
    plans = [*nearest_plans(lambda cap: solve(world, 64, cap), 64)]
    curve = predicted(fixed, each)
    kinds = [simulate_inventory(["1x A100 80GB"]).gpus[0]]
    base = fitting.TrainingSetup(
        RECIPE, {}, frozenset(), "fp32", world, tuple(kinds), Path("unused")
    )
    taken = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fitting, "predict", lambda steps, state: [curve] * len(steps))
        for free in (size * GIB, 2 * size * GIB):
            card = replace(kinds[0], memory_free=free)
            found = fitting.fit(replace(base, cards=(card,)), plans, [])
            assert isinstance(found, FitResult)
            assert found.fits == (found.candidate.peak.total <= MARGIN * free)
            taken.append(found.candidate.plan.per_device if found.fits else 0)
    assert taken[0] <= taken[1]


# The same card with less and with more memory.
GROWING = (("RTX 4090", "RTX 6000 Ada"), ("A100 40GB", "A100 80GB"), ("H100", "H200"))


@pytest.mark.parametrize("name", recipe_names())
def test_what_comes_with_ddpfix_predicts_every_recipe_on_every_kind_of_card(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    asked = PlanRequest(load(name), tmp_path / "run.py")

    def taken(cards: str) -> int:
        try:
            found = make_plan(asked, on(cards))
        except InputError:  # nothing fits: said in the golden texts
            return 0
        way = fitted(found).candidate
        assert way.peak.total == sum(values(way.peak)) <= way.limit
        return way.plan.per_device

    for pair, count in itertools.product(GROWING, (1, 2, 3, 4, 8)):
        less, more = (taken(f"{count}x {kind}") for kind in pair)
        assert less <= more
    taken("4x T4")


def test_the_plan_that_the_documentation_shows_is_what_is_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "plan.md"
    command, _, shown = page.read_text().split("```")[1].partition("\n$ ")[2].partition("\n")
    done = run(*shlex.split(command)[1:])
    assert (done.exit_code, done.stdout) == (0, shown)


# --- time ---


def test_a_step_waits_for_products_or_memory_and_then_for_the_rest(
    predictions: dict[str, Curve], tmp_path: Path
) -> None:
    found = make_plan(ask(tmp_path), on("2x A100 40GB"))
    way = fitted(found).candidate
    cards = on("2x A100 40GB").cards
    step = expected_step_time(way, cards)
    assert step is not None
    # 4 examples of 1 TFLOP, 8 times, at a third of 19.5 TFLOPS: fp32, the script has no --amp.
    assert step.at_peak == pytest.approx(32 / 19.5)
    assert step.compute == pytest.approx(32 / 19.5 / EFFICIENCY)
    assert (step.bottleneck, step.all_reduce) == ("products", 0.0)
    slow = expected_step_time(replace(way, flops=10**9, bytes_moved=10**10), cards)
    assert slow is not None
    assert slow.bottleneck == "memory"
    assert slow.compute == pytest.approx(32 * 10 / 1555 / 0.8)


def test_gradients_go_round_beside_the_backward_pass_at_the_rate_of_the_slowest_link(
    predictions: dict[str, Curve], tmp_path: Path
) -> None:
    devices = on("4x A100 PCIe 40GB")
    planned = fitted(make_plan(ask(tmp_path), devices)).candidate
    way = replace(planned, trainable_bytes=10**10, flops=0)

    def reduced(*links: Link) -> float:
        found = expected_step_time(way, devices.cards, links)
        assert found is not None
        beside = BACKWARD_SHARE * found.compute / way.plan.accumulation
        return 1 / (found.all_reduce + beside) * 2 * 3 / 4 * 10 / LINK_EFFICIENCY

    assert reduced() == pytest.approx(32)  # PCIe 4.0
    assert reduced(Link(0, 1, "NV4"), Link(2, 3, "NV12")) == pytest.approx(100)
    assert reduced(Link(0, 1, "NV4"), Link(1, 2, "SYS")) == pytest.approx(32)
    # Those to cards that are not used do not matter.
    assert reduced(Link(0, 1, "NV4"), Link(1, 7, "SYS")) == pytest.approx(100)


def test_a_card_without_a_sheet_has_no_expected_time_until_it_was_measured(
    predictions: dict[str, Curve], tmp_path: Path
) -> None:
    devices = on("1x A100 40GB")
    unheard = replace(devices, cards=(replace(devices.cards[0], name="NVIDIA X1"),))
    asked = ask(tmp_path)
    assert make_plan(asked, unheard).estimate is None
    asked.throughput_history(unheard).store(Throughput("now", 1, 2, 8, seconds=3.0), "fp32")
    found = make_plan(asked, unheard).estimate
    assert found is not None
    assert found.step == pytest.approx(12.0)  # 4 x 16 examples in the place of 2 x 8


def test_what_was_measured_corrects_time_and_memory_of_such_a_training_alone(
    predictions: dict[str, Curve], tmp_path: Path
) -> None:
    asked, devices = ask(tmp_path), on("1x A100 40GB")
    before = make_plan(asked, devices)
    assert before.estimate is not None
    pace = Throughput("now", 1, 2, 32, seconds=3.0, time=1.5, memory=1.6, power=250.0)
    asked.throughput_history(devices).store(pace, "fp32")
    after = make_plan(asked, devices)
    assert after.plan.per_device == 2  # 4 would take 38.4 GiB of 36.8
    assert after.estimate is not None
    assert after.roofline is not None
    assert after.estimate.step == pytest.approx(1.5 * after.roofline.seconds)
    other = replace(asked, extra=("--block_size", "400"))
    assert make_plan(other, devices).plan.per_device == 4
    assert make_plan(asked, on("1x A100 PCIe 40GB")).plan.per_device == 4


# The bars of a run with 640 examples in 8 x 4 x 2 -> seconds of its optimizer step.
BARS: dict[str, tuple[dict[str, list[float]], float | None]] = {
    "micro-batches": ({"40": [30, 15.0], "7": [7, 9.0]}, 2.0),
    "neither": ({"41": [30, 15.0]}, None),
    "too few to tell": ({"40": [19, 15.0]}, None),
}


@pytest.mark.parametrize(("units", "seconds"), BARS.values(), ids=BARS.keys())
def test_a_run_tells_its_pace_by_a_bar_of(
    units: dict[str, list[float]], seconds: float | None
) -> None:
    assert step_seconds(solve(2, 64, 8), 640, units) == seconds


def test_a_bar_of_optimizer_steps_is_taken_for_one() -> None:
    assert step_seconds(solve(2, 64, 8), 6400, {"100": [50, 100.0]}) == 2.0


def test_epochs_and_energy_follow_from_the_step() -> None:
    cards = on("2x RTX 6000 Ada").cards
    horizon = Horizon(6400, 2.0, 100, 200, "")
    pace = Throughput("now", 2, 8, 4, seconds=9.0)
    found = estimate(solve(2, 64, 8), None, pace, horizon, cards)
    assert found is not None
    assert (found.epoch, found.total) == (900.0, 1800.0)
    assert found.energy == pytest.approx(2 * 300 * 0.5 / 1000)
    assert found.summary[1] == "energy of the cards: 0.3 kWh at most, by the boards' power"
    measured = estimate(solve(2, 64, 8), None, replace(pace, power=200.0), horizon, cards)
    assert measured is not None
    assert measured.energy == pytest.approx(0.2)
    assert measured.energy_measured
    assert estimate(solve(2, 64, 8), None, None, horizon, cards) is None


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.1234, "0.12 s"), (42.4, "42 s"), (600, "10.0 min"), (7200, "2.0 h")]
)
def test_a_time_is_told_in_the_unit_that_suits_it(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words
