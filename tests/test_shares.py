"""Unequal shares of one batch, planned and then trained with, are the lone process's steps."""

from __future__ import annotations

from pathlib import Path

from ddpfix.launchers.planning.plan import divide_batch, solve_shared
from ddpfix.launchers.planning.training_steps import steps_per_epoch
from ddpfix.launchers.script.flags import set_flag
from ddpfix.launchers.verify import trace_compare as compare
from ddpfix.patcher.engine.patch import patch
from forked import Forge, Job
from sabotage import write

BATCH = "--train_batch_size"
EXAMPLES = 157  # two batches of 64 and one of 29


def test_three_ranks_with_22_21_and_21_examples_have_the_gradient_of_64(
    forge: Forge, tmp_path: Path
) -> None:
    plan = solve_shared(3, 64, 22)
    assert (plan.global_micro_batch, plan.accumulation) == (64, 1)
    script, words = write(tmp_path / "original", train=EXAMPLES)
    copy = tmp_path / "patched" / script.name
    copy.parent.mkdir()
    copy.write_bytes(script.read_bytes())
    patch(copy, exact=True).write()

    def job(name: str, what: Path, world: int | None) -> Job:
        own = set_flag(words, "--output_dir", str(tmp_path / name / "out"))
        arguments = set_flag(own, BATCH, str(plan.global_micro_batch))
        return Job(tmp_path / name, what, arguments, world, ["--no-dropout", "--keep-parameters"])

    alone, group = forge.run([job("alone", script, None), job("group", copy, plan.world)])
    assert {*alone.statuses, *group.statuses} == {0}, alone.log + group.log

    [lone] = alone.ranks
    epochs = len([one for one in lone.passes if one.kind == "train"])
    expected = [
        epochs * (2 * share.examples + rest.examples)
        for share, rest in zip(plan.shares, divide_batch(EXAMPLES % 64, 3), strict=True)
    ]
    assert [
        sum(len(one.indices) for one in rank.passes if one.kind == "train") for rank in group.ranks
    ] == expected
    before, after = compare.steps(alone.ranks), compare.steps(group.ranks)
    assert len(before) == epochs * steps_per_epoch(EXAMPLES, plan) > 0
    assert compare.deviation(before, after, "norm").largest < 1e-5
    assert compare.deviation(before, after, "loss").largest < 1e-6
    assert compare.first_divergent_step(group.ranks) == 0
