"""A probe takes real optimizer steps, of two gloo ranks, and corrects what is told of the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import run
from ddpfix.launchers.running import probe_worker
from launched import RECIPE

# Its third optimizer step and all others are slower than the first ones; it notes where it writes.
TRAINS = """
import argparse, os, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
for name in ("batch", "eval_batch", "accumulation"):
    parser.add_argument("--" + name, type=int)
parser.add_argument("--out")
parser.add_argument("--steps", type=int, default=1000)
args = parser.parse_args()
model = torch.nn.Linear(4, 1)
if "RANK" in os.environ:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters())
other = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
for step in range(args.steps):
    for micro_batch in range(args.accumulation):
        model(torch.ones(args.batch, 4)).mean().backward()
    time.sleep(0.05 if step > 1 else 0)
    other.step()
    optimizer.step()
    optimizer.zero_grad()
os.makedirs(args.out, exist_ok=True)
with open("written.txt", "a") as file:
    file.write(args.out)
"""


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    text = RECIPE.replace("files = {}", 'files = { "--data" = "data.txt" }\ntrain = "--data"')
    text = text.replace('output = "--out"', 'output = "--out"\nepochs = "--epochs"')
    (tmp_path / "own.toml").write_text(text)
    (tmp_path / "data.txt").write_text("x\n" * 160)
    (tmp_path / "run.py").write_text(
        TRAINS.replace('"--out")', '"--out")\nparser.add_argument("--data")')
        + '\nparser.add_argument("--epochs")'
    )
    return ["plan", "--recipe", "own.toml", "--cpu"]


def test_a_probes_steps_are_timed_kept_and_used_by_the_next_plan(
    words: list[str], tmp_path: Path
) -> None:
    before = json.loads(run(*words, "--json").stdout)
    assert before["time"] is None
    done = run(*words, "--probe", 4, "--json", "--", "--out", "mine")
    assert done.exit_code == 0, done.output
    assert "Timing 4 optimizer steps" in done.stderr
    step = json.loads(done.stdout)["time"]["step"]
    # The median of four steps, of which all but the first sleep; none takes as long as two.
    assert step >= 0.05
    assert {path.name for path in tmp_path.iterdir()} == {"own.toml", "data.txt", "run.py", "state"}
    again = json.loads(run(*words, "--json").stdout)
    assert again["time"]["step"] == step
    one = json.loads(run(*words, "--json", "--processes", 1).stdout)
    assert one["time"]["step"] == pytest.approx(2 * step)  # 8 x 2 examples in place of 8 x 1


# The user's arguments for the script -> words of the one line.
REFUSED = {
    "the script ends before": (
        ("--steps", "2"),
        "--probe 3: the script ended before it had taken 4 optimizer steps",
    ),
    "the script fails": (("--x",), "--probe 3: the script failed with exit status 2; its last"),
}


@pytest.mark.parametrize(("extra", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_a_probe_that_tells_nothing_says_why(
    extra: tuple[str, ...], said: str, words: list[str], tmp_path: Path
) -> None:
    done = run(*words, "--processes", 1, "--probe", 3, "--", *extra)
    assert done.exit_code == 2
    assert said in done.stderr
    assert not (tmp_path / "state").exists()


def test_a_probe_needs_something_to_run_on(words: list[str]) -> None:
    for options, said in (
        (("plan", "--gpus", "2x T4"), "nothing can run on simulated cards"),
        (("launch", "--cpu", "--dry-run"), "--probe runs the script here and now"),
    ):
        done = run(*options[:1], "--recipe", "own.toml", *options[1:], "--probe", 3)
        assert done.exit_code == 2
        assert said in done.stderr


@pytest.mark.parametrize("missing", ["--out", "--steps"])
def test_the_worker_asks_for_what_it_needs(
    missing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"--out": str(tmp_path), "--steps": "3"}
    del options[missing]
    with pytest.raises(SystemExit):
        probe_worker.main([*(word for pair in options.items() for word in pair), "train.py"])
    assert f"the following arguments are required: {missing}" in capsys.readouterr().err
