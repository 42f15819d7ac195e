"""Plans of training on weights that FSDP2 divides among the ranks."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from ddpfix.cli import ddpfix
from ddpfix.launchers.gpus.simulated import simulate_inventory
from ddpfix.launchers.gpus.specs import card_named
from ddpfix.launchers.memory.curves import trace_curve
from ddpfix.launchers.memory.peak import Curve, Peak, between_worlds
from ddpfix.launchers.memory.process_overhead import add_process_overhead
from ddpfix.launchers.memory.step import FSDP_FLAG, step_of
from ddpfix.launchers.planning.candidates import Candidate
from ddpfix.launchers.planning.plan import solve
from ddpfix.launchers.planning.roofline import expected_step_time
from ddpfix.recipes.load import load
from ddpfix.record import replace
from golden_plans import laid_out
from test_memory import STEP

DEEP = replace(STEP.network, layers=8, intermediate=512)  # its layers hold most of its weights
SHARDED = replace(STEP, network=DEEP, length=4, sharded=True, world=2, capability=None)
BATCHES = (1, 8, 64)


@functools.cache
def curve_on(world: int) -> Curve:
    curve = trace_curve(replace(SHARDED, world=world), BATCHES)
    assert isinstance(curve, Curve)
    return curve


def test_the_curve_between_two_worlds_is_not_below_what_is_traced() -> None:
    told, traced = between_worlds(curve_on(2), curve_on(8), (2, 8, 4)), curve_on(4)
    for name in ("peaks", "gathered"):
        for one, other in zip(getattr(told, name), getattr(traced, name), strict=True):
            assert 0.999 * other.total <= one.total <= 1.05 * other.total


def test_a_step_takes_at_least_what_an_evaluation_does() -> None:
    curve = curve_on(8)
    trained, gathered = ([peak.total for peak in peaks] for peaks in (curve.peaks, curve.gathered))
    assert gathered[0] > trained[0]  # all weights against a rank's part
    assert gathered[-1] < trained[-1]
    peaks = add_process_overhead(curve, replace(SHARDED, world=8)).peaks
    assert [peak.total for peak in peaks] == [*map(max, trained, gathered)]


def test_the_buckets_of_ddp_are_not_added_to_those_of_a_sharded_step() -> None:
    step = replace(SHARDED, capability=(8, 0))
    with_sharding, without = (
        add_process_overhead(curve_on(2), replace(step, sharded=sharded)).at(64)
        for sharded in (True, False)
    )
    assert without.buckets - with_sharding.buckets == curve_on(2).trainable


@pytest.mark.parametrize(
    ("arguments", "world", "expected"),
    [({FSDP_FLAG: None}, 4, True), ({FSDP_FLAG: None}, 1, False), ({}, 4, False)],
    ids=["several ranks with the switch", "a lone rank", "no switch"],
)
def test_a_step_is_sharded(arguments: dict[str, None], world: int, expected: bool) -> None:
    recipe = load("codebert-bigclonebench")
    step = step_of(recipe, {**recipe.arguments, **arguments}, world=world)
    assert step is not None
    assert step.sharded is expected


def test_gathering_over_slow_links_holds_a_step_up() -> None:
    cards = simulate_inventory(["4x RTX 6000 Ada"]).gpus
    assert card_named(cards[0].name)
    plan = solve(4, 4, 1)
    whole = Candidate(plan, "bf16", {}, Peak(parameters=1 << 30), 1 << 36, 1, 1, 1, 1 << 30)
    parts = replace(whole, sharded=True)  # of 4 GiB in all
    slow, fast = (expected_step_time(candidate, cards) for candidate in (parts, whole))
    assert slow is not None
    assert fast is not None
    assert (slow.bottleneck, fast.bottleneck) != ("links", "links")
    assert slow.bottleneck == "links"
    # Forward and backward gather 3 of the 4 GiB each; gradients, of 1 GiB, then go once.
    assert slow.compute == pytest.approx(4 * fast.all_reduce, rel=1e-3)


def launched(folder: Path, cards: str, *words: str) -> tuple[int, str]:
    script = laid_out(load("anchor-xlmr-xxl"), folder)
    options = ["--script", str(script), "--gpus", cards, "--no-learned", "--dry-run"]
    command = ["launch", "--recipe", "anchor-xlmr-xxl", *options, "--", *words]
    done = CliRunner().invoke(ddpfix, command, env={"XDG_STATE_HOME": str(folder)})
    return done.exit_code, done.stderr


@pytest.mark.parametrize("cards", ["4x RTX 6000 Ada", "8x RTX 6000 Ada"])
def test_a_model_too_large_for_one_card_is_planned_sharded(tmp_path: Path, cards: str) -> None:
    status, refused = launched(tmp_path, cards, "--lora-rank", "0")
    assert status == 2
    remedies = refused.partition("What would fit: ")[2].split("; ")
    assert re.fullmatch(r"--fsdp: \d+\.\d GiB with \d+ per device", remedies[0])
    assert remedies[-1].startswith("a card of ")
    status, planned = launched(tmp_path, cards, "--lora-rank", "0", FSDP_FLAG)
    assert status == 0
    assert f"--fsdp: {cards[0]} ranks divide weights, gradients and optimizer states" in planned
    assert "44.1 GiB may be used" in planned
