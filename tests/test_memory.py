"""What a card reserves for a series of allocations, and what is told of a step's peak."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT
from ddpfix.launchers.memory import build_shipped as ship
from ddpfix.launchers.memory import predict as predicting
from ddpfix.launchers.memory import reported_cases as reported
from ddpfix.launchers.memory.allocator import Allocator, exact, replay
from ddpfix.launchers.memory.peak import Curve, NoPrediction, Peak, extended
from ddpfix.launchers.memory.predict import DEEP, SHALLOW, name_of, predict
from ddpfix.launchers.memory.process_overhead import HANDLES, NCCL, with_surroundings
from ddpfix.launchers.memory.step import TrainingStep, essence, step_of
from ddpfix.recipes.load import known, load
from ddpfix.recipes.network import Network
from ddpfix.record import changed

KIB, MIB = 1 << 10, 1 << 20

# What is taken at once -> what torch counts as allocated, and what it reserves, in bytes.
TAKEN = {
    "one byte takes a block of 512 of a small segment": ([1], 512, 2 * MIB),
    "sizes are rounded up to 512": ([513], 1024, 2 * MIB),
    "1 MiB is the largest of the small": ([MIB], MIB, 2 * MIB),
    "above, 20 MiB are shared": ([MIB + 1, 8 * MIB], 9 * MIB + 512, 20 * MIB),
    "small and large never share": ([512, 2 * MIB], 2 * MIB + 512, 22 * MIB),
    "10 MiB have a segment of their own": ([10 * MIB], 10 * MIB, 10 * MIB),
    "which is a multiple of 2 MiB": ([10 * MIB + 1], 10 * MIB + 512, 12 * MIB),
    "a large rest of up to 1 MiB is given along": ([11 * MIB], 12 * MIB, 12 * MIB),
    "a small rest of 512 is not": ([2 * MIB // 4 - 512] * 4, 2 * MIB - 2 * KIB, 2 * MIB),
    "nor is one more block of what is left": (
        [2 * MIB // 4 - 512] * 4 + [2 * KIB],
        2 * MIB,
        2 * MIB,
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_taken_is_allocated_and_reserved_as_torch_does_it(name: str) -> None:
    sizes, allocated, reserved = TAKEN[name]
    allocator = Allocator()
    for size in sizes:
        allocator.take(size)
    assert (allocator.allocated, allocator.reserved) == (allocated, reserved)


def test_the_best_fitting_free_piece_is_taken() -> None:
    allocator = Allocator()
    pieces = [allocator.take(size * MIB) for size in (40, 12, 20)]
    for piece in pieces:
        allocator.give(piece)
    assert allocator.take(18 * MIB).address == pieces[2].address
    assert allocator.reserved == 72 * MIB


def test_free_neighbours_become_one_piece_again() -> None:
    allocator = Allocator()
    pieces = [allocator.take(5 * MIB) for _ in range(4)]
    for number in (0, 2, 1):
        allocator.give(pieces[number])
    allocator.take(15 * MIB)
    assert allocator.reserved == 20 * MIB


def test_a_hole_that_is_too_small_is_what_fragments() -> None:
    sizes = [20 * MIB, 20 * MIB, 30 * MIB]
    events = [0, 1, ~0, 2, ~1, ~2]
    alive, reserved = replay(sizes, events)
    assert (alive, reserved) == ({1: 20 * MIB, 2: 30 * MIB}, 70 * MIB)


def test_a_peak_before_the_counted_events_is_not_the_peak_but_stays_reserved() -> None:
    sizes = [30 * MIB, 512, 1000]
    events = [0, ~0, 1, 2]
    assert replay(sizes, events, counted=2) == ({1: 512, 2: 1024}, 32 * MIB)
    assert exact(sizes, events, counted=2) == {1: 512, 2: 1000}
    assert exact(sizes, events) == {0: 30 * MIB}


CURVE = Curve(
    (1, 2, 4),
    (Peak(100, optimizer=50), Peak(100, activations=60), Peak(100, activations=120)),
    trainable=100,
    flops=7,
    moved=9,
    moved_once=5,
)


def test_a_peak_adds_up() -> None:
    peak = Peak(1, 2, 3, 4, 5, 6, 7, 8)
    assert (peak.allocated, peak.reserved, peak.total) == (21, 28, 36)


# Batch -> total of the curve above.
BETWEEN = {1: 150, 2: 160, 3: 190, 4: 220, 6: 280}


@pytest.mark.parametrize("batch", BETWEEN)
def test_between_two_batches_and_beyond_them_the_peak_is_on_the_line(batch: int) -> None:
    assert CURVE.at(batch).total == BETWEEN[batch]


@pytest.mark.parametrize(("limit", "batch"), [(149, 0), (150, 1), (189, 2), (190, 3), (280, 6)])
def test_the_largest_batch_is_the_last_whose_total_fits(limit: int, batch: int) -> None:
    assert CURVE.largest(limit) == batch


def test_a_network_of_many_layers_goes_on_in_a_straight_line() -> None:
    more = Curve((1, 2), (Peak(140, 0, 50), Peak(140, 0, 0, 80)), 120, 9, 10, 5, (Peak(7),) * 2)
    few = changed(CURVE, accumulated=(Peak(5), Peak(6), Peak(7)))
    assert extended(few, more, (4, 6, 12)) == Curve(
        (1, 2), (Peak(260, 0, 50), Peak(260, 0, 0, 140)), 180, 15, 13, 5, (Peak(13), Peak(10))
    )


def test_a_curve_survives_json() -> None:
    assert Curve.from_json(json.loads(json.dumps(CURVE.to_json()))) == CURVE


NETWORK = Network(
    "roberta",
    "pair",
    vocabulary=50,
    hidden=32,
    layers=1,
    heads=2,
    intermediate=64,
    positions=40,
    length=("--block_size",),
)
STEP = TrainingStep(NETWORK, 16)


def test_several_ranks_have_buckets_and_nccl_and_a_card_has_a_context() -> None:
    alone, several = (
        with_surroundings(CURVE, changed(STEP, world=world)).at(1) for world in (1, 2)
    )
    assert alone.workspace == HANDLES * 8320 * KIB
    assert (alone.buckets, several.buckets) == (0, CURVE.trainable)
    assert several.context - alone.context == NCCL
    assert 300 * MIB <= alone.context <= 900 * MIB


def test_a_step_with_gradients_from_before_has_the_peaks_of_one() -> None:
    both = changed(CURVE, accumulated=(Peak(200), Peak(300), Peak(400)))
    totals = {
        accumulates: with_surroundings(
            both, changed(STEP, capability=None, accumulates=accumulates)
        ).at(2)
        for accumulates in (False, True)
    }
    assert totals == {False: CURVE.at(2), True: Peak(300)}


def test_on_the_cpu_there_is_nothing_around() -> None:
    assert with_surroundings(CURVE, changed(STEP, capability=None, world=2)) == CURVE


# Steps that have one trace with STEP, and steps that have not.
SAME = {
    "another world": changed(STEP, world=4),
    "accumulation, which has a curve of its own": changed(STEP, accumulates=True),
    "a newer card, in float32": changed(STEP, capability=(9, 0)),
    "an old card, in float32": changed(STEP, capability=(7, 5)),
    "other flags": changed(STEP, network=changed(NETWORK, length=("--length",), lora="--rank")),
}
OTHER = {
    "half precision": changed(STEP, precision="bf16"),
    "the CPU": changed(STEP, capability=None),
    "an old card, in half precision": changed(STEP, precision="fp16", capability=(7, 5)),
    "another length": changed(STEP, length=17),
    "checkpointing": changed(STEP, checkpointing=True),
    "an evaluation": changed(STEP, training=False),
    "eager attention": changed(STEP, attention="eager"),
}


@pytest.mark.parametrize("name", SAME)
def test_what_does_not_matter_to_the_trace_is_not_in_its_name(name: str) -> None:
    assert name_of(essence(SAME[name])) == name_of(essence(STEP))


def test_what_matters_to_the_trace_is_in_its_name() -> None:
    names = {name_of(essence(step)) for step in (STEP, *OTHER.values())}
    assert len(names) == 1 + len(OTHER)


@pytest.mark.parametrize("name", known())
def test_the_step_of_a_recipe_follows_its_arguments(name: str) -> None:
    recipe = load(name)
    plain = step_of(recipe, recipe.arguments)
    assert plain is not None
    assert TrainingStep.from_json(json.loads(json.dumps(plain.to_json()))) == plain
    flag = recipe.flags.sequence_length
    assert flag is not None
    network = recipe.model
    assert network is not None
    told: dict[str, object] = {**recipe.arguments, flag: 64, "--attn_implementation": "eager"}
    told |= {str(network.checkpointing): None, str(network.lora): "8"}
    step = step_of(recipe, told, precision="bf16", world=2, accumulates=True)
    assert step is not None
    assert plain.length - step.length == int(recipe.arguments[flag]) - 64
    assert (step.checkpointing, step.lora_rank, step.attention) == (True, 8, "eager")
    precision = network.precision or "bf16"
    assert (step.precision, step.world, step.accumulates) == (precision, 2, True)


def test_a_recipe_without_its_model_has_no_step() -> None:
    recipe = changed(load("codebert-bigclonebench"), model=None, sources={})
    assert step_of(recipe, recipe.arguments) is None


def test_of_a_network_of_many_layers_two_with_few_are_traced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layers: list[int] = []

    def trace(steps: list[TrainingStep]) -> list[Curve]:
        layers.extend(step.network.layers for step in steps)
        return [changed(CURVE, flops=10 * step.network.layers) for step in steps]

    monkeypatch.setattr(predicting, "traced", trace)
    deep, not_deep = (changed(STEP, network=changed(NETWORK, layers=n)) for n in (24, DEEP))
    answers = predict([deep, not_deep])
    assert layers == [*SHALLOW, DEEP]
    assert [answer.flops for answer in answers if isinstance(answer, Curve)] == [240, 120]


def test_what_was_traced_is_kept_by_the_versions_and_not_traced_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced = []

    def trace(steps: list[TrainingStep]) -> list[Curve | NoPrediction]:
        traced.extend(steps)
        return [NoPrediction("too large") if step.length > 20 else CURVE for step in steps]

    monkeypatch.setattr(predicting, "traced", trace)
    steps = [STEP, changed(STEP, world=2), changed(STEP, length=21)]
    first = predict(steps, tmp_path)
    assert traced == [essence(STEP), essence(steps[2])]
    assert first[2] == NoPrediction("too large")
    assert predict(steps, tmp_path) == first
    assert traced == [essence(STEP), *[essence(steps[2])] * 2]
    (kept,) = (tmp_path / "predicted").iterdir()
    kept.write_text("{")
    predict([STEP], tmp_path)
    monkeypatch.setattr(predicting, "installed", lambda: {"torch": "0.1"})
    predict([STEP], tmp_path)
    assert traced[3:] == [essence(STEP)] * 2


def test_what_is_shipped_is_complete_and_of_the_versions_that_are_tested() -> None:
    content = json.loads(predicting.SHIPPED.read_text())
    assert {*content["curves"]} == {name_of(step) for step in ship.steps()}
    pinned = (ROOT / "constraints.txt").read_text().split()
    assert {f"{name}=={version}" for name, version in content["versions"].items()} <= {*pinned}


def test_the_table_of_reported_figures_is_what_is_predicted() -> None:
    text = (ROOT / "docs" / "memory.md").read_text()
    between = text.partition("<!-- reported -->\n")[2].partition("\n<!-- end -->")[0]
    assert between == reported.table()


def test_a_known_recipe_is_predicted_without_torch(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from ddpfix.launchers.memory.predict import predict
from ddpfix.launchers.memory.step import step_of
from ddpfix.recipes.load import load
recipe = load("codegpt-bigclonebench")
curve, = predict([step_of(recipe, recipe.arguments)], Path(sys.argv[1]))
print(curve.at(8).total, "torch" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env=os.environ | {"PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=True,
    )
    total, imported = done.stdout.split()
    assert imported == "False"
    assert 10 << 30 < int(total) < 40 << 30
    assert not list(tmp_path.iterdir())
