"""Family D compiled: its encoder is thawed, synchronised and saved as without the compiler."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from capable import made, outputs
from ddpfix.fixtures.authorship import build_authored_data, detector_arguments
from ddpfix.fixtures.tiny import build_model, copy_family
from ddpfix.launchers.trace.events import Parameters
from ddpfix.launchers.verify import trace_compare as compare
from ddpfix.patcher.engine.patch import patch
from forked import Forge, Job, Run
from safetensors.numpy import load_file

PRELUDE = Path(__file__).parent / "preludes" / "compiled.py"
STEPS = 3  # in each of two epochs; the encoder is frozen in the first
HEAD = 6  # tensors outside of the encoder: three layers, each with a bias


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model(tmp_path_factory.mktemp("model"), "roberta", layers=1)


@pytest.fixture(scope="module")
def runs(forge: Forge, model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("detector")
    data = build_authored_data(folder / "data", train=24, valid=4)
    original, patched = (
        copy_family("detector", folder / name, "train_detector.py") for name in ("old", "new")
    )
    patch(patched, unsafe=True).write()

    def job(name: str, script: Path, world: int | None, *words: str) -> Job:
        here = folder / name
        training = detector_arguments(model, data, here / "out", batch=8 // (world or 1), epochs=2)
        options = ["--no-dropout"] if world else []
        return Job(here, script, [*training, *words], world, options, PRELUDE)

    compiled = "--compile=True"
    jobs = [
        job("original", original, None, compiled, "--epochs=1"),
        job("alone", patched, None, compiled, "--epochs=1"),
        job("ranks", patched, 2),
        job("compiled", patched, 2, compiled),
    ]
    return made(forge, jobs)


def test_one_process_compiles_and_computes_what_it_did(runs: dict[str, Run]) -> None:
    before, after = runs["original"], runs["alone"]
    assert before.seen == after.seen
    (old,), (new,) = before.ranks, after.ranks
    assert [step.loss for step in old.steps] == [step.loss for step in new.steps] != []
    assert [step.checksum for step in old.steps] == [step.checksum for step in new.steps]
    for name in ("best_model.pt", "predictions.txt"):
        assert outputs(before)[name] == outputs(after)[name]


def test_what_is_thawed_is_trained_by_new_graphs(runs: dict[str, Run]) -> None:
    for seen in runs["compiled"].seen:
        assert seen["modes"] == ["reduce-overhead"]
        graphs, trained = seen["graphs"], seen["trained"]
        assert graphs == [graphs[0]] * STEPS + [graphs[-1]] * STEPS
        assert 0 < graphs[0] < graphs[-1]
        assert trained[:STEPS] == [HEAD] * STEPS
        assert min(trained[STEPS:]) > HEAD


def test_ranks_take_the_steps_of_ranks_without_the_compiler(runs: dict[str, Run]) -> None:
    before, after = (compare.steps(runs[name].ranks) for name in ("ranks", "compiled"))
    assert len(before) == 2 * STEPS
    assert compare.deviation(before, after, "loss").largest < 1e-5
    assert compare.deviation(before, after, "norm").largest < 1e-5
    plain, capable = runs["ranks"].ranks[0], runs["compiled"].ranks[0]
    assert compare.all_reduces_per_step(capable) == compare.all_reduces_per_step(plain)


def test_the_encoder_moves_and_is_the_same_on_every_rank(runs: dict[str, Run], model: Path) -> None:
    ranks = runs["compiled"].ranks
    assert compare.first_divergent_step(ranks) == 0
    (last,) = ranks[0].events_of(Parameters)
    assert last.after_step == 2 * STEPS
    before = load_file(model / "model.safetensors")
    moved = {
        name
        for name, weight in before.items()
        if f"encoder.{name}" in last.tensors
        and not np.isclose(last.tensors[f"encoder.{name}"][1], np.linalg.norm(weight), rtol=1e-6)
    }
    assert set(before) - moved == {"pooler.dense.bias", "pooler.dense.weight"}  # not in the script


def test_the_checkpoint_has_the_original_s_names(runs: dict[str, Run]) -> None:
    import torch

    paths = [runs[name].folder / "out" / "best_model.pt" for name in ("original", "compiled")]
    first, second = (torch.load(path, weights_only=False)["model"] for path in paths)
    assert list(first) == list(second)
    assert not any(name.startswith(("module", "_orig_mod")) for name in second)
