"""The figures that are read from a training's log."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from ddpfix.launchers.report.curves import MAX_POINTS, LogCurves, read_curves
from ddpfix.launchers.report.log_lines import read_line
from ddpfix.launchers.report.terminal import blocks

LINES = [
    pytest.param(
        "epoch 0: loss 0.69:  45%|####      | 9/20 [00:12<00:15,  1.31s/it]",
        {"step": 9, "steps": 20, "seconds": 12.0, "pace": 1 / 1.31, "loss": 0.69},
        id="a bar of tqdm with the loss before it",
    ),
    pytest.param(
        "100%|##########| 7200/7200 [1:02:03<00:00, 1.93it/s, loss=2e-3, lr=5e-05]",
        {"step": 7200, "steps": 7200, "seconds": 3723.0, "pace": 1.93, "loss": 2e-3, "rate": 5e-5},
        id="a bar of more than an hour, with the loss behind it",
    ),
    pytest.param(
        "  0%|          | 0/20 [00:00<?, ?it/s]",
        {"step": 0, "steps": 20, "seconds": 0.0, "pace": None},
        id="a bar that begins",
    ),
    pytest.param(
        "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.3",
        {"step": 640, "steps": 60000, "loss": 2.3},
        id="a position in brackets with a per cent",
    ),
    pytest.param(
        "Epoch: [0][  10/5005]\tTime  0.2 ( 0.3)\tLoss 6.9e+00 (7.0e+00)",
        {"step": 10, "steps": 5005, "loss": 6.9},
        id="a position in brackets",
    ),
    pytest.param(
        "INFO - epoch 0 step 100 loss 0.63 lr 4.5e-05",
        {"named": 100, "loss": 0.63, "rate": 4.5e-5},
        id="a line that names its step",
    ),
    pytest.param(
        "{'loss': 0.5, 'learning_rate': 3e-05, 'epoch': 0.1}",
        {"loss": 0.5, "rate": 3e-5},
        id="a dictionary",
    ),
    pytest.param("INFO   eval_f1 = 0.9459", {"eval_f1": 0.9459}, id="a score"),
    pytest.param(
        "75%|##  | 3/4 [00:01<00:00, 2.00it/s, acc=0.5]eval_acc = 0.75",
        {"step": 3, "steps": 4, "seconds": 1.0, "pace": 2.0, "eval_acc": 0.75},
        id="a score that the other stream put behind a bar",
    ),
    pytest.param(
        "{'eval_loss': 0.3, 'eval_accuracy': 0.91, 'eval_runtime': 4.2}",
        {"eval_loss": 0.3, "eval_accuracy": 0.91},
        id="scores in a dictionary, without what is none",
    ),
    pytest.param("step 3 loss nan", {"named": 3, "loss": pytest.approx(float("nan"), nan_ok=True)}),
]


@pytest.mark.parametrize(("line", "figures"), LINES)
def test_the_figures_of_a_line(line: str, figures: dict[str, Any]) -> None:
    read = read_line(line)
    assert read is not None
    found: dict[str, Any] = {"named": read.step, "loss": read.loss, "rate": read.rate}
    if read.bar:
        bar = read.bar
        found |= {"step": bar.step, "steps": bar.steps, "seconds": bar.seconds, "pace": bar.pace}
    found = {name: value for name, value in found.items() if value is not None}
    assert found | dict(read.scores) == {k: v for k, v in figures.items() if v is not None}


@pytest.mark.parametrize(
    "line",
    [
        "Namespace(learning_rate=5e-05, train_batch_size=8, eval_batch_size=8)",
        "Downloading: 2023-11-01 10:00:00 INFO model.py: reading",
        "eval_batch_size = 8",
        "Loading weights: 100%|##########| 39/39 [00:00<00:00, 31799.74it/s]",
        "Writing model shards: 100%|##########| 1/1 [00:00<00:00, 50.1it/s]",
        "Map (num_proc=4):  50%|#####     | 500/1000 [00:01<00:01, 480.1 examples/s]",
        "glossary: 7",
        "",
    ],
)
def test_a_line_without_a_figure(line: str) -> None:
    assert read_line(line) is None


def drawn_by_tqdm(lengths: list[tuple[int, str]]) -> str:
    """What tqdm draws of loops of these lengths; a loop with a name shows its loss."""
    from tqdm import tqdm

    text, done = io.StringIO(), 0
    for length, name in lengths:
        bar = tqdm(range(length), file=text, mininterval=0)
        for _ in bar:
            if name:
                done += 1
                bar.set_description(f"{name} loss {1 / done:.5f}")
    return text.getvalue()


def curves_of(tmp_path: Path, text: str) -> LogCurves:
    log = tmp_path / "log.txt"
    log.write_text(text)
    return read_curves(log)


def test_the_steps_of_an_epoch_follow_those_of_the_one_before(tmp_path: Path) -> None:
    text = drawn_by_tqdm([(200, ""), (12, "train"), (12, ""), (12, "train"), (500, "")])
    curves = curves_of(tmp_path, text)
    assert [(one.length, one.steps) for one in curves.passes] == [(12, 12), (12, 12)]
    assert curves.loss.steps == list(range(25))
    assert curves.loss.last == pytest.approx(1 / 24, abs=1e-5)
    assert curves.step_seconds is not None
    assert 0 < curves.step_seconds < 1


def test_a_score_stands_where_the_training_was(tmp_path: Path) -> None:
    first, second = drawn_by_tqdm([(5, "train")]), drawn_by_tqdm([(5, "train")])
    text = f"{first}\neval_acc = 0.5\n{second}\neval_acc = 0.75\n"
    acc = curves_of(tmp_path, text).scores["eval_acc"]
    assert (acc.steps, acc.values) == ([5, 10], [0.5, 0.75])


def test_ranks_that_share_a_log_make_no_epochs_of_their_own(tmp_path: Path) -> None:
    bar = "{n:3}%|#  | {n}/100 [00:01<00:01, 50.00it/s, loss=0.5]\n"
    text = "".join(bar.format(n=max(0, n - back)) for n in range(101) for back in (0, 1, 3))
    assert [one.steps for one in curves_of(tmp_path, text * 2).passes] == [100, 100]


def test_a_log_without_bars_counts_the_steps_that_it_names(tmp_path: Path) -> None:
    text = "".join(f"epoch {e} step {s} loss {e + s / 100}\n" for e in (1, 2) for s in (50, 100))
    loss = curves_of(tmp_path, text).loss
    assert (loss.steps, loss.values) == ([50, 100, 150, 200], [1.5, 2.0, 2.5, 3.0])


def test_a_long_log_is_thinned_out(tmp_path: Path) -> None:
    count = 10 * MAX_POINTS
    loss = curves_of(tmp_path, "".join(f"step {n} loss {n}\n" for n in range(count))).loss
    assert MAX_POINTS // 2 <= len(loss.steps) <= MAX_POINTS
    assert loss.steps == loss.values
    assert loss.steps == sorted(loss.steps)
    assert loss.steps[-1] > 0.99 * count


def test_a_curve_as_blocks() -> None:
    assert blocks([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert blocks([1, 1]) == "▁▁"
    assert blocks([0.0, float("nan"), 7.0]) == "▁?█"
    assert len(blocks(range(1000))) <= 32
