"""A script and today's command, without a recipe: the same global batch on any number of ranks."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run

# Writes what each rank got, and the folder that its own arguments name.
SCRIPT = """
import argparse, json, os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("-b", "--examples", type=int, default=8)
    parser.add_argument("--wait", type=int, default=1)
    parser.add_argument("--eta", type=float, default=0.1)
    parser.add_argument("--save_dir", default=".")
    opt = parser.parse_args()
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    rank = dist.get_rank() if dist.is_initialized() else 0
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    data = TensorDataset(torch.arange(128.0).reshape(64, 2))
    sampler = None
    if dist.is_initialized():
        model = DistributedDataParallel(model)
        sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=opt.examples, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=opt.eta * 1e-6)
    for epoch in range(1):
        if sampler is not None:
            sampler.set_epoch(epoch)
        for step, (x,) in enumerate(loader):
            (model(x).mean() / opt.wait).backward()
            if (step + 1) % opt.wait == 0:
                optimizer.step()
                optimizer.zero_grad()
    if rank == 0:
        os.makedirs(opt.save_dir, exist_ok=True)
        world = dist.get_world_size() if dist.is_initialized() else 1
        with open(os.path.join(opt.save_dir, "seen.json"), "w") as file:
            json.dump([world, opt.examples, opt.wait, opt.data, os.environ.get("COLOUR")], file)
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


def dry_run(*words: str, world: int = 2) -> list[str]:
    """The words of the script's part of the command that would run."""
    cards = f"{world}x A100 80GB"
    result = run("launch", "--dry-run", "--gpus", cards, *words)
    assert result.exit_code == 0, result.output
    line = shlex.split(result.stdout)
    return line[line.index("train.py") :]


def number(words: list[str], flag: str) -> int:
    joined = [word for word in words if word.startswith(f"{flag}=")]
    return int(joined[0].partition("=")[2] if joined else words[words.index(flag) + 1])


@pytest.mark.parametrize("world", [1, 2, 3, 4, 8])
@pytest.mark.parametrize(
    ("command", "total"),
    [
        ("train.py -- DATA -b 24", 24),
        ("train.py -- DATA --examples=24 --wait 2", 48),
        ("train.py -- DATA", 8),
        ("-- python train.py DATA --examples 24 --wait 2", 48),
        ("-- 'python train.py DATA'", 8),
        ("-- torchrun --nproc_per_node=4 train.py DATA -b6 --wait 4", 96),
        ("-- accelerate launch --num_processes 2 train.py DATA --examples 12", 24),
    ],
)
@pytest.mark.usefixtures("here")
def test_any_number_of_ranks_has_the_global_batch_of_todays_command(
    world: int, command: str, total: int
) -> None:
    words = dry_run(*shlex.split(command), world=world)
    product = number(words, "--examples") * number(words, "--wait") * world
    if total % world == 0:
        assert product == total
    else:
        assert abs(product - total) < world
    assert words[-1] == "DATA"
    assert not {"-b", "-b6"} & set(words)


def test_its_other_arguments_reach_the_script_as_they_are(here: Path) -> None:
    words = dry_run("train.py", "--", "a b", "--examples", "8", "--eta", "-1e-3", "--save_dir", "x")
    assert words[-5:] == ["a b", "--eta", "-1e-3", "--save_dir", "x"]
    assert list(here.iterdir()) == [here / "train.py"]


@pytest.mark.parametrize("form", ["script", "command"])
def test_two_ranks_train_it_and_write_where_its_own_arguments_say(here: Path, form: str) -> None:
    words = ["DATA", "--examples", "8", "--wait", "2", "--save_dir", "made/here"]
    start = ["train.py", "--"] if form == "script" else ["--", "COLOUR=red", "python", "train.py"]
    done = subprocess.run(
        [sys.executable, "-m", "ddpfix", "launch", "--cpu", *start, *words],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "global batch 16 = 8 per device x 1 accumulated x 2 processes" in done.stderr
    colour = None if form == "script" else "red"
    assert json.loads((here / "made/here/seen.json").read_text()) == [2, 8, 1, "DATA", colour]
    runs = list((here / "state/ddpfix/runs").iterdir())
    assert len(runs) == 1
    assert not list(runs[0].rglob("seen.json"))


def test_a_batch_that_nobody_can_set_is_said_with_what_it_becomes(here: Path) -> None:
    text = SCRIPT.replace("batch_size=opt.examples", "batch_size=12")
    text = text.replace('    parser.add_argument("-b", "--examples", type=int, default=8)\n', "")
    (here / "train.py").write_text(text)
    result = run("launch", "--dry-run", "--gpus", "4x T4", "train.py", "--", "DATA")
    assert "N processes make a global batch of N x 12 against the original's 12" in result.stderr
    assert "`ddpfix patch --with flags train.py` makes it an option" in result.stderr
    assert "global batch 48 = 12 per device x 1 accumulated x 4 processes" in result.stderr
    assert result.stdout.endswith("train.py DATA\n")


def test_a_batch_that_cannot_be_told_is_asked_for_in_a_line(here: Path) -> None:
    text = SCRIPT.replace("DataLoader(data, batch_size=opt.examples, sampler=sampler)", "made()")
    (here / "train.py").write_text(text)
    refused = run("launch", "--dry-run", "--cpu", "train.py", "--", "DATA")
    assert refused.exit_code == 2
    assert re.search(
        r"^ddpfix: train.py: which option .* name it with --batch-flag$", refused.stderr
    )
    words = dry_run("--batch-flag", "--examples", "train.py", "--", "DATA", "-b", "8")
    assert number(words, "--examples") == 4


def test_a_script_that_divides_its_batch_by_the_ranks_gets_that_of_all(here: Path) -> None:
    text = SCRIPT.replace("batch_size=opt.examples", "batch_size=opt.examples // world_size")
    (here / "train.py").write_text(text)
    words = dry_run(
        "--", "torchrun", "--nproc_per_node", "2", *["train.py", "DATA", "-b", "24"], world=4
    )
    assert number(words, "--examples") == 24
    result = run("plan", "--gpus", "4x T4", "train.py", "--", "DATA", "-b", "24")
    assert "global batch 24 = 6 per device x 1 accumulated x 4 processes" in result.stdout


@pytest.mark.parametrize(
    ("command", "total", "note"),
    [
        ("CUDA_VISIBLE_DEVICES=0,1 python train.py DATA --per_gpu_batch 8", 16, ""),
        ("python train.py DATA --per_gpu_batch 8", 8, "read as for one card"),
        ("torchrun --nproc_per_node 4 train.py DATA --per_gpu_batch 8", 32, ""),
    ],
)
def test_a_batch_per_card_counts_the_cards_of_todays_command(
    here: Path, command: str, total: int, note: str
) -> None:
    text = SCRIPT.replace('"-b", "--examples"', '"--per_gpu_batch", dest="examples"')
    (here / "train.py").write_text(text)
    result = run("launch", "--dry-run", "--gpus", "2x T4", "--", *command.split())
    assert f"global batch {total} = " in result.stderr
    assert note in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name what to run: `ddpfix launch train.py -- ARGS`"),
        (["missing.py"], "missing.py: no such script"),
        (["--", "ls"], "ls: no Python script is started in it"),
        (
            ["train.py", "--", "DATA", "-b", "many"],
            "--examples many: it takes a whole number above 0",
        ),
        (["train.py", "--", "DATA", "-b", "0"], "--examples 0: it takes a whole number above 0"),
        (["--recipe", "graphcodebert", "--batch-flag", "--x"], "--batch-flag --x: leave it out"),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_cannot_be_launched_is_refused_in_a_line(words: list[str], message: str) -> None:
    result = run("launch", "--dry-run", "--cpu", *words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len([line for line in result.stderr.splitlines() if line.startswith("ddpfix:")]) == 1


@pytest.mark.usefixtures("forged_verify")
def test_verify_knows_the_batch_and_accumulation_by_what_they_do(here: Path) -> None:
    done = run(
        *("verify", "train.py", "--as-is", "--world-sizes", "1,2", "--accumulation", "1"),
        *("--verdict", "verdict.json", "--", "DATA", "--save_dir", "out"),
    )
    assert (here / "verdict.json").exists(), done.output
    verdict = json.loads((here / "verdict.json").read_text())
    [row] = [row for row in verdict["rows"] if row["code"] == "C3"]
    assert row["status"] == "holds", row
    assert "1 run of 8 steps" in row["evidence"]  # 64 examples in global batches of 8
