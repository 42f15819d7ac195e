"""Scripts that share a module are patched in one go; one alone is refused with the way out."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import run
from ddpfix.patcher.engine.patch import patch

CONFIG = """\
import torch


def set_up(args):
    if args.local_rank == -1:
        args.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        args.n_gpu = torch.cuda.device_count()
    else:
        args.device = torch.device("cuda", args.local_rank)
        torch.distributed.init_process_group("nccl")
        args.n_gpu = 1


def parse(parser):
    parser.add_argument("--local_rank", type=int, default=-1)
    args = parser.parse_args()
    return args
"""
SCRIPT = """\
import argparse

import torch
from config import parse, set_up
from torch.utils.data import DataLoader


def main():
    args = parse(argparse.ArgumentParser())
    set_up(args)
    model = torch.nn.Linear(2, 2)
    model.to(args.device)
    if args.n_gpu > 1:
        model = torch.nn.DataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for batch in DataLoader(torch.randn(8, 2), batch_size=2):
        model(batch).mean().backward()
        optimizer.step()


if __name__ == "__main__":
    main()
"""


@pytest.fixture
def scripts(tmp_path: Path) -> list[Path]:
    (tmp_path / "config.py").write_text(CONFIG)
    names = [tmp_path / "one.py", tmp_path / "two.py"]
    for name in names:
        name.write_text(SCRIPT)
    return names


def test_one_alone_is_refused_and_told_what_goes_with_it(scripts: list[Path]) -> None:
    result = patch(scripts[0])
    assert "O11" in result.refusal
    assert "two.py uses parse, which now asks for the rank, and trains" in result.refusal
    assert f"in one go, `ddpfix patch {scripts[0]} {scripts[1]}`" in result.refusal


def test_all_that_go_with_it_are_told_in_one_line(scripts: list[Path]) -> None:
    (scripts[0].parent / "six.py").write_text(SCRIPT)
    (scripts[0].parent / "tools.py").write_text("from config import parse\n")
    result = patch(scripts[0])
    assert result.refusal.count("O11") == 1
    assert "six.py, two.py use parse, which now asks for the rank, and train " in result.refusal
    six = scripts[0].parent / "six.py"
    assert f"`ddpfix patch {scripts[0]} {six} {scripts[1]}`" in result.refusal


def test_verify_names_them_where_they_are_and_not_its_copies(scripts: list[Path]) -> None:
    done = run("verify", scripts[0], "--", "--local_rank", "-1")
    assert done.exit_code == 2
    assert f"`ddpfix patch {scripts[0]} {scripts[1]}`" in done.output


def test_in_one_go_both_are_patched_and_stay_so(scripts: list[Path]) -> None:
    done = run("patch", *scripts)
    assert done.exit_code == 1, done.output
    for script in scripts:
        assert "DistributedDataParallel" in script.read_text()
    assert "LOCAL_RANK" in (scripts[0].parent / "config.py").read_text()
    again = run("patch", *scripts)
    assert again.exit_code == 0, again.output
    alone = run("patch", scripts[0])
    assert alone.exit_code == 0, alone.output


def test_one_of_them_that_is_refused_is_named(scripts: list[Path]) -> None:
    scripts[1].write_text(SCRIPT.replace("batch_size=2)", "sampler=own)"))
    done = run("patch", *scripts)
    assert done.exit_code == 2
    assert "two.py: not patched" in done.output
    assert "DistributedDataParallel" in scripts[0].read_text()
    assert "DistributedDataParallel" not in scripts[1].read_text()


def test_what_one_patch_leaves_to_the_launcher_the_next_does_not_gate_again(
    tmp_path: Path,
) -> None:
    model = """\
import torch


class Net(torch.nn.Linear):
    def forward(self, x):
        torch.cuda.set_device(1)
        return super().forward(x)
"""
    script = """\
import torch
from model import Net
from torch.utils.data import DataLoader


def main():
    model = Net(2, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for batch in DataLoader(torch.randn(8, 2), batch_size=2):
        model(batch.cuda()).mean().backward()
        optimizer.step()


if __name__ == "__main__":
    main()
"""
    (tmp_path / "model.py").write_text(model)
    scripts = [tmp_path / "one.py", tmp_path / "two.py"]
    for name in scripts:
        name.write_text(script)
    run("patch", *scripts)
    text = (tmp_path / "model.py").read_text()
    assert text.count("'LOCAL_RANK' not in os.environ") == 1
    assert "is_initialized" in scripts[1].read_text()
