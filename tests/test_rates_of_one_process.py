"""DF709: rates of scripts that knew one process only are those of all ranks' examples."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import found
from ddpfix.patcher.engine.patch import patch

SCRIPT = """\
import argparse
import math
import torch
from torch.utils.data import DataLoader


def main(args):
    net = torch.nn.Linear(2, 2)
    {wrap}
    loader = DataLoader(examples, batch_size={size}, shuffle=True)
    {rate}
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    for epoch in range(3):
        for batch in loader:
            optimizer.zero_grad()
            net(batch).mean().backward()
            optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--n_gpu", type=int, default=1)
    {early}args = parser.parse_args()
    main(args)
"""
WRAP = "net = torch.nn.DataParallel(net)"
RANKS = "(torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1)"


def script(rate: str, size: str = "args.batch_size", wrap: str = WRAP, early: str = "") -> str:
    return SCRIPT.format(rate=rate, size=size, wrap=wrap, early=early)


@pytest.mark.parametrize(
    ("rate", "patched"),
    [
        ("rate = args.lr * args.batch_size / 256", "args.lr * (args.batch_size * RANKS) / 256"),
        ("rate = args.batch_size / 256 * args.lr", "(args.batch_size * RANKS) / 256 * args.lr"),
        ("args.lr *= args.batch_size / 64; rate = args.lr", "(args.batch_size * RANKS) / 64; rate"),
        (
            "rate = args.lr * math.sqrt(args.batch_size / 64)",
            "args.lr * math.sqrt((args.batch_size * RANKS) / 64)",
        ),
        (
            "whole = args.batch_size * 2\n    rate = args.lr * whole / 256",
            "whole = args.batch_size * 2\n    rate = args.lr * (whole * RANKS) / 256",
        ),
        ("lr = args.batch_size / 256; rate = lr", "lr = (args.batch_size * RANKS) / 256; rate"),
    ],
)
def test_the_rate_is_that_of_all_ranks_examples(rate: str, patched: str, tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(script(rate))
    (change,) = patch(path).changes
    assert patched.replace("RANKS", RANKS) in change.text
    assert found("DF709", change.text) == []


@pytest.mark.parametrize(
    ("rate", "size"),
    [
        ("rate = args.lr", "args.batch_size"),
        ("rate = args.lr / args.batch_size", "args.batch_size"),
        ("rate = args.lr * args.batch_size * args.n_gpu / 256", "args.batch_size"),
        ("rate = args.lr * args.batch_size / 256", "args.batch_size * args.n_gpu"),
        ("rate = args.lr * args.batch_size / 256", "8"),
        ("args.lr_steps = args.batch_size * 100; rate = args.lr", "args.batch_size"),
    ],
)
def test_a_rate_of_something_else_is_left_alone(rate: str, size: str, tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(script(rate, size))
    (change,) = patch(path).changes
    assert f"    {rate}\n" in change.text


def test_a_script_that_had_ranks_knows_its_batch() -> None:
    group = "torch.distributed.init_process_group('nccl')"
    wrap = f"{group}; net = torch.nn.parallel.DistributedDataParallel(net)"
    assert found("DF709", script("rate = args.lr * args.batch_size / 256", wrap=wrap)) == []
