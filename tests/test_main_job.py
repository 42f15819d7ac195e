"""The main job, end to end: a legacy script is patched, launched on two processes, trains right."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from click.testing import CliRunner
from ddpfix.cli import ddpfix
from ddpfix.fixtures.tiny import build_clone_data, build_model, clone_arguments, copy_family
from ddpfix.launchers.backends.command import Command
from ddpfix.launchers.cli import demo
from ddpfix.launchers.trace.events import Collective
from ddpfix.launchers.trace.read import RankTrace, read
from ddpfix.launchers.verify import trace_compare as compare
from ddpfix.launchers.verify.traced_run import TracedRun, run_traced
from ddpfix.patcher.engine.patch import patch
from forked import Forge, Job
from lone_copies import lone_copy
from rich.console import Console

VARIANTS = list(demo.VARIANTS.items())


@pytest.fixture(scope="module", params=VARIANTS, ids=[name for name, _ in VARIANTS])
def told(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, forge: Forge
) -> Path:
    """A folder in which the demo's story has run for one variant.

    Of its four launches one is the real accelerate's, which tells none of them from another. The
    second variant starts no workers, which are the same in both.
    """
    variant, kind = request.param

    def start(what: Command, run_folder: Path) -> TracedRun:
        launched = (variant, run_folder.name) == ("codegpt", "two-1")
        return (run_traced if launched else forge.trace)(what, run_folder)

    folder = tmp_path_factory.mktemp(variant)
    with pytest.MonkeyPatch.context() as copied:
        if variant != "codegpt":
            copied.setattr(demo, "copy_family", lambda _, home: lone_copy(home))
        lines, _ = demo.story(folder, kind, variant, Console(file=io.StringIO()), start=start)
    assert [line for line in lines if not line.holds] == []
    assert len(lines) == 12
    return folder


def ranks(told: Path, name: str) -> list[RankTrace]:
    return read(told / "runs" / name / "trace")


def saved(told: Path, name: str) -> Path:
    return told / "runs" / name / "saved_models"


def test_the_untouched_script_fails_for_the_reason_that_check_names_first(told: Path) -> None:
    untouched = ranks(told, "untouched")
    assert "cannot import name 'AdamW' from 'transformers'" in compare.uncaught_exception(untouched)
    assert compare.exit_statuses(untouched) != [0, 0]
    script = copy_family("bigclonebench", told / "fresh")
    codes = {finding.code for finding in patch(script).findings_before}
    assert {"DF901", "DF203", "DF101"} <= codes


def test_shimmed_it_is_two_trainings_that_write_the_same_files(told: Path) -> None:
    run = ranks(told, "shimmed")
    # Both may find no folder for the first checkpoint: who makes it second dies of it (DF602), and
    # the launcher ends the other.
    dead = {r.rank for r in run if compare.uncaught_exception([r]).startswith("FileExistsError: ")}
    assert len(dead) < 2
    epochs = 1 if dead else 2
    for rank in run:
        every = [p for p in rank.passes if p.kind == "train"]
        passes = every[:1] if dead else every
        assert [set(p.indices) for p in passes] == [set(range(demo.TRAIN))] * epochs
        assert [len(p.indices) for p in passes] == [demo.TRAIN] * epochs
        assert rank.events_of(Collective) == []
    files = compare.writers(run, saved(told, "shimmed"))
    if dead:
        assert files.get("checkpoint-best-f1/model.bin", set()) <= {0, 1} - dead
    else:
        assert files["checkpoint-best-f1/model.bin"] == {0, 1}
    # Neither predicts where the file is broken by two writers at once.
    assert set(files) <= {"checkpoint-best-f1/model.bin", "predictions.txt"}


@pytest.mark.parametrize("accumulation", [1, 4])
def test_loss_norm_and_rate_of_every_step_are_those_of_one_process(
    told: Path, accumulation: int
) -> None:
    one = compare.steps(ranks(told, f"one-{accumulation}"))
    two = compare.steps(ranks(told, f"two-{accumulation}"))
    assert len(one) == len(two) == 2 * demo.TRAIN // demo.GLOBAL_BATCH
    for a, b in zip(one, two, strict=True):
        assert b.loss == pytest.approx(a.loss, rel=1e-6)
        assert b.norm == pytest.approx(a.norm, rel=1e-5)
        assert b.lr == a.lr
    assert one[0].lr < max(step.lr for step in one) > one[-1].lr


def test_accumulation_1_and_4_are_one_training(told: Path) -> None:
    first = compare.steps(ranks(told, "two-1"))
    second = compare.steps(ranks(told, "two-4"))
    assert [s.loss for s in second] == pytest.approx([s.loss for s in first], rel=1e-6)
    assert [s.norm for s in second] == pytest.approx([s.norm for s in first], rel=1e-5)
    assert [s.lr for s in second] == [s.lr for s in first]


def test_with_accumulation_there_is_one_gradient_all_reduce_per_step(told: Path) -> None:
    for rank in ranks(told, "two-4"):
        assert set(compare.all_reduces_per_step(rank)) == {1}


def test_ranks_share_every_global_batch_without_overlap(told: Path) -> None:
    both = [[p for p in rank.passes if p.kind == "train"] for rank in ranks(told, "two-1")]
    for first, second in zip(*both, strict=True):
        assert sorted(first.indices + second.indices) == list(range(demo.TRAIN))
    orders = [first.indices for first in both[0]]
    assert orders[0] != orders[1], "the order of epoch 2 repeats epoch 1's"


@pytest.mark.parametrize("accumulation", [1, 4])
def test_every_example_is_scored_once_in_order_and_both_classes_are_predicted(
    told: Path, accumulation: int
) -> None:
    scored = compare.evaluations(ranks(told, f"two-{accumulation}"))
    assert [coverage.length for coverage in scored] == [demo.VALID] * 3 + [demo.TEST]
    assert all(coverage.indices == tuple(range(coverage.length)) for coverage in scored)
    lines = (saved(told, f"two-{accumulation}") / "predictions.txt").read_text().splitlines()
    urls = [line.split("\t")[:2] for line in (told / "data" / "test.txt").read_text().splitlines()]
    assert [line.split("\t")[:2] for line in lines] == urls
    assert {line.split("\t")[2] for line in lines} == {"0", "1"}


def test_ranks_end_their_group_and_exit_0(told: Path) -> None:
    for rank in ranks(told, "two-1"):
        assert rank.status == 0
        assert rank.group_destroyed


@pytest.mark.parametrize(("variant", "kind"), VARIANTS, ids=[name for name, _ in VARIANTS])
def test_one_process_with_dropout_computes_bit_for_bit_what_the_untouched_script_did(
    tmp_path: Path, variant: str, kind: demo.Kind, forge: Forge
) -> None:
    model = build_model(tmp_path / "model", kind)
    data = build_clone_data(tmp_path / "data", train=20, valid=7, test=5)
    original, patched = (lone_copy(tmp_path / name) for name in ("original", "patched"))
    patch(patched).write()

    def arguments(output: str) -> list[str]:
        return clone_arguments(model, data, tmp_path / output, kind, batch=3)

    jobs = [
        Job(tmp_path / "first", original, arguments("a"), None, ["--shim-legacy"]),
        Job(tmp_path / "second", patched, arguments("b")),
    ]
    first, second = forge.run(jobs)
    assert [first.statuses, second.statuses] == [(0,), (0,)]
    (before,), (after,) = first.ranks, second.ranks
    assert len(before.steps) == 2 * 7
    assert [s.loss for s in after.steps] == [s.loss for s in before.steps]
    assert [s.norm_before_clipping for s in after.steps] == [
        s.norm_before_clipping for s in before.steps
    ]
    assert [s.lrs for s in after.steps] == [s.lrs for s in before.steps]
    assert [s.checksum for s in after.steps] == [s.checksum for s in before.steps]
    metrics = [[(m.key, m.value) for m in rank.metrics] for rank in (before, after)]
    assert metrics[0] == metrics[1]
    names = sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*"))
    assert names == sorted(p.relative_to(tmp_path / "b") for p in (tmp_path / "b").rglob("*"))
    for name in names:
        if (tmp_path / "a" / name).is_file():
            assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert Path("checkpoint-best-f1/model.bin") in names


def test_the_demo_keeps_nothing_where_something_is(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    result = CliRunner().invoke(ddpfix, ["demo", "--output", str(tmp_path)])
    assert result.exit_code == 2
    assert "is not empty" in result.stderr
