"""``patch --with loader``: workers, pinned memory, transfers, matmul precision, attention."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ddpfix.fixtures.tiny import build_clone_data, build_model, clone_arguments, copy_family
from ddpfix.patcher.capabilities import select_capabilities
from ddpfix.patcher.engine.patch import patch
from forked import Forge, Job, Run

PRELUDE = Path(__file__).parent / "preludes" / "loading.py"
TUNED = (
    "--dataloader_num_workers=2 --dataloader_pin_memory=0 --dataloader_persistent_workers=1 "
    "--dataloader_prefetch_factor=3 --matmul_precision=high --attn_implementation=sdpa"
)


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Family A, patched without the capability and with it."""
    found = {}
    for name, capabilities in (("plain", ()), ("capable", select_capabilities(["loader"]))):
        found[name] = copy_family("bigclonebench", tmp_path_factory.mktemp(name))
        result = patch(found[name], capabilities=capabilities)
        assert (result.refusal, result.capability_failures) == ("", ())
        result.write()
    return found


@pytest.fixture(scope="module")
def runs(
    forge: Forge, scripts: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("loader")
    model = build_model(folder / "model", "gpt2")
    data = build_clone_data(folder / "data", train=24, valid=7, test=5)

    def job(name: str, script: str, world: int | None, words: str = "") -> Job:
        here = folder / name
        training = clone_arguments(model, data, here / "out", "gpt2", batch=4, epochs=1)
        return Job(here, scripts[script], [*training, *words.split()], world, prelude=PRELUDE)

    jobs = [
        job("alone", "plain", None),
        job("alone, off", "capable", None),
        job("ranks", "plain", 2),
        job("ranks, off", "capable", 2),
        job("tuned", "capable", 2, TUNED),
        job("eager", "capable", 2, "--attn_implementation=eager"),
    ]
    found = forge.run(jobs)
    for run in found:
        assert set(run.statuses) == {0}, run.log
    return {job.folder.name: run for job, run in zip(jobs, found, strict=True)}


def outputs(run: Run) -> dict[str, bytes]:
    paths = [path for path in (run.folder / "out").rglob("*") if path.is_file()]
    return {path.name: path.read_bytes() for path in paths}


@pytest.mark.parametrize("name", ["alone", "ranks"])
def test_without_its_flags_nothing_is_computed_otherwise(name: str, runs: dict[str, Run]) -> None:
    before, after = runs[name], runs[f"{name}, off"]
    for a, b in zip(before.ranks, after.ranks, strict=True):
        assert [step.loss for step in a.steps] == [step.loss for step in b.steps] != []
        assert [step.checksum for step in a.steps] == [step.checksum for step in b.steps]
    assert outputs(before) == outputs(after) != {}


def test_alone_without_its_flags_loaders_have_the_options_of_the_script(
    runs: dict[str, Run],
) -> None:
    (before,), (after,) = runs["alone"].seen, runs["alone, off"].seen
    assert before["loaders"] == after["loaders"]
    assert {row[0] for row in before["loaders"]} == {0, 4}


def test_ranks_share_the_cores_unless_told_otherwise(runs: dict[str, Run]) -> None:
    share = max(1, len(os.sched_getaffinity(0)) // 2)
    before, after = runs["ranks"].seen[0], runs["ranks, off"].seen[0]
    assert [row[0] for row in after["loaders"]] == [min(row[0], share) for row in before["loaders"]]


def test_the_flags_reach_every_loader_of_every_rank(runs: dict[str, Run]) -> None:
    for seen in runs["tuned"].seen:
        assert len(seen["loaders"]) > 2
        assert {tuple(row) for row in seen["loaders"]} == {(2, False, True, 3)}


def test_matmul_precision_is_what_the_flag_says(runs: dict[str, Run]) -> None:
    assert [seen["precision"] for seen in runs["tuned"].seen] == ["high", "high"]
    assert [seen["precision"] for seen in runs["ranks, off"].seen] == ["highest", "highest"]


def test_attention_is_computed_as_the_flag_says(runs: dict[str, Run]) -> None:
    assert all(seen["sdpa"] > 0 for seen in runs["tuned"].seen)
    assert [seen["sdpa"] for seen in runs["eager"].seen] == [0, 0]


def test_no_copy_of_a_batch_is_waited_for(runs: dict[str, Run]) -> None:
    before, after = runs["ranks"].seen[0], runs["ranks, off"].seen[0]
    assert before["not_waited"] == 0
    assert after["not_waited"] == before["waited"] - after["waited"] > 0


def test_an_attention_that_the_model_cannot_have_is_told_and_not_used(
    scripts: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    helpers: dict[str, object] = {}
    text = scripts["capable"].read_text()
    start = text.index("def choose_attention")
    exec(text[start : text.index("\n\n\n", start)], helpers)

    class Old:
        pass

    choose = helpers["choose_attention"]
    assert callable(choose)
    choose(Old(), "flash_attention_2")
    assert "flash_attention_2 is not used" in capsys.readouterr().out


def test_a_second_patch_changes_nothing(scripts: dict[str, Path]) -> None:
    again = patch(scripts["capable"], capabilities=select_capabilities(["loader"]))
    assert (again.refusal, again.changes, again.capability_failures) == ("", (), ())
