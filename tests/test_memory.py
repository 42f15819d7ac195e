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
from ddpfix.launchers.memory.allocator import Allocator, replay, replay_exactly
from ddpfix.launchers.memory.peak import Curve, NoPrediction, Peak, extrapolate_layers
from ddpfix.launchers.memory.predict import MAX_TRACED_LAYERS, TRACED_LAYERS, predict, step_hash
from ddpfix.launchers.memory.process_overhead import (
    CUBLAS_HANDLES,
    NCCL_BYTES,
    add_process_overhead,
)
from ddpfix.launchers.memory.step import TrainingStep, canonical_step, step_of
from ddpfix.recipes.load import load, recipe_names
from ddpfix.recipes.network import Network
from ddpfix.record import replace

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
        allocator.allocate(size)
    assert (allocator.allocated, allocator.reserved) == (allocated, reserved)


def test_the_best_fitting_free_piece_is_taken() -> None:
    allocator = Allocator()
    pieces = [allocator.allocate(size * MIB) for size in (40, 12, 20)]
    for piece in pieces:
        allocator.free(piece)
    assert allocator.allocate(18 * MIB).address == pieces[2].address
    assert allocator.reserved == 72 * MIB


def test_free_neighbours_become_one_piece_again() -> None:
    allocator = Allocator()
    pieces = [allocator.allocate(5 * MIB) for _ in range(4)]
    for number in (0, 2, 1):
        allocator.free(pieces[number])
    allocator.allocate(15 * MIB)
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
    assert replay_exactly(sizes, events, counted=2) == {1: 512, 2: 1000}
    assert replay_exactly(sizes, events) == {0: 30 * MIB}


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
    assert CURVE.largest_batch(limit) == batch


def test_a_network_of_many_layers_goes_on_in_a_straight_line() -> None:
    more = Curve((1, 2), (Peak(140, 0, 50), Peak(140, 0, 0, 80)), 120, 9, 10, 5, (Peak(7),) * 2)
    few = replace(CURVE, accumulated=(Peak(5), Peak(6), Peak(7)))
    assert extrapolate_layers(few, more, (4, 6, 12)) == Curve(
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
        add_process_overhead(CURVE, replace(STEP, world=world)).at(1) for world in (1, 2)
    )
    assert alone.workspace == CUBLAS_HANDLES * 8320 * KIB
    assert (alone.buckets, several.buckets) == (0, CURVE.trainable)
    assert several.context - alone.context == NCCL_BYTES
    assert 300 * MIB <= alone.context <= 900 * MIB


def test_a_step_with_gradients_from_before_has_the_peaks_of_one() -> None:
    both = replace(CURVE, accumulated=(Peak(200), Peak(300), Peak(400)))
    totals = {
        accumulates: add_process_overhead(
            both, replace(STEP, capability=None, accumulates=accumulates)
        ).at(2)
        for accumulates in (False, True)
    }
    assert totals == {False: CURVE.at(2), True: Peak(300)}


def test_on_the_cpu_there_is_nothing_around() -> None:
    assert add_process_overhead(CURVE, replace(STEP, capability=None, world=2)) == CURVE


# Steps that have one trace with STEP, and steps that have not.
SAME = {
    "another world": replace(STEP, world=4),
    "accumulation, which has a curve of its own": replace(STEP, accumulates=True),
    "a newer card, in float32": replace(STEP, capability=(9, 0)),
    "an old card, in float32": replace(STEP, capability=(7, 5)),
    "other flags": replace(STEP, network=replace(NETWORK, length=("--length",), lora="--rank")),
}
OTHER = {
    "half precision": replace(STEP, precision="bf16"),
    "the CPU": replace(STEP, capability=None),
    "an old card, in half precision": replace(STEP, precision="fp16", capability=(7, 5)),
    "another length": replace(STEP, length=17),
    "checkpointing": replace(STEP, checkpointing=True),
    "an evaluation": replace(STEP, training=False),
    "eager attention": replace(STEP, attention="eager"),
}


@pytest.mark.parametrize("name", SAME)
def test_what_does_not_matter_to_the_trace_is_not_in_its_name(name: str) -> None:
    assert step_hash(canonical_step(SAME[name])) == step_hash(canonical_step(STEP))


def test_what_matters_to_the_trace_is_in_its_name() -> None:
    names = {step_hash(canonical_step(step)) for step in (STEP, *OTHER.values())}
    assert len(names) == 1 + len(OTHER)


@pytest.mark.parametrize("name", recipe_names())
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
    recipe = replace(load("codebert-bigclonebench"), model=None, sources={})
    assert step_of(recipe, recipe.arguments) is None


def test_of_a_network_of_many_layers_two_with_few_are_traced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layers: list[int] = []

    def trace(steps: list[TrainingStep]) -> list[Curve]:
        layers.extend(step.network.layers for step in steps)
        return [replace(CURVE, flops=10 * step.network.layers) for step in steps]

    monkeypatch.setattr(predicting, "trace_in_process", trace)
    deep, not_deep = (
        replace(STEP, network=replace(NETWORK, layers=n)) for n in (24, MAX_TRACED_LAYERS)
    )
    answers = predict([deep, not_deep])
    assert layers == [*TRACED_LAYERS, MAX_TRACED_LAYERS]
    assert [answer.flops for answer in answers if isinstance(answer, Curve)] == [240, 120]


def test_what_was_traced_is_kept_by_the_versions_and_not_traced_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced = []

    def trace(steps: list[TrainingStep]) -> list[Curve | NoPrediction]:
        traced.extend(steps)
        return [NoPrediction("too large") if step.length > 20 else CURVE for step in steps]

    monkeypatch.setattr(predicting, "trace_in_process", trace)
    steps = [STEP, replace(STEP, world=2), replace(STEP, length=21)]
    first = predict(steps, tmp_path)
    assert traced == [canonical_step(STEP), canonical_step(steps[2])]
    assert first[2] == NoPrediction("too large")
    assert predict(steps, tmp_path) == first
    assert traced == [canonical_step(STEP), *[canonical_step(steps[2])] * 2]
    (kept,) = (tmp_path / "predicted").iterdir()
    kept.write_text("{")
    predict([STEP], tmp_path)
    monkeypatch.setattr(predicting, "installed_versions", lambda: {"torch": "0.1"})
    predict([STEP], tmp_path)
    assert traced[3:] == [canonical_step(STEP)] * 2


def test_what_is_shipped_is_complete_and_of_the_versions_that_are_tested() -> None:
    content = json.loads(predicting.SHIPPED.read_text())
    assert {*content["curves"]} == {step_hash(step) for step in ship.shipped_steps()}
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
