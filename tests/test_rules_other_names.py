"""The accumulation by another name: a horizon that it divides already is not divided again."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import run

SCRIPT = """
import argparse
import torch
from torch.utils.data import DataLoader, RandomSampler
from transformers import get_linear_schedule_with_warmup

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--wait", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    model = torch.nn.Linear(2, 2)
    data = torch.zeros(8, 2)
    loader = DataLoader(data, sampler=RandomSampler(data), batch_size=4)
    n = args.wait
    t_total = len(loader) // DIVISOR * args.epochs
    opt = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = get_linear_schedule_with_warmup(opt, 0, t_total)
    for epoch in range(args.epochs):
        for step, batch in enumerate(loader):
            (model(batch).mean() / TEST).backward()
            if (step + 1) % TEST == 0:
                opt.step()
                scheduler.step()
                opt.zero_grad()

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(("divisor", "test"), [("n", "args.wait"), ("args.wait", "n"), ("n", "n")])
def test_a_horizon_is_divided_once(tmp_path: Path, divisor: str, test: str) -> None:
    script = tmp_path / "run.py"
    script.write_text(SCRIPT.replace("DIVISOR", divisor).replace("TEST", test))
    done = run("patch", script)
    assert "not patched" not in done.stderr, done.stderr
    [horizon] = [line for line in script.read_text().splitlines() if "t_total =" in line]
    assert horizon.strip() == "t_total = steps_per_epoch * args.epochs"
    steps = [
        line.strip() for line in script.read_text().splitlines() if "steps_per_epoch =" in line
    ]
    assert steps == [f"steps_per_epoch = -(-len(loader) // {divisor})  # optimizer steps"]


RETURNED = """
import argparse
import torch
from torch.nn.parallel import DistributedDataParallel

def read():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--no_cuda", action="store_true")
    opts = parser.parse_args()
    opts.device = torch.device("cpu")
    return opts

def main():
    args = read()
    if args.local_rank != -1:
        torch.distributed.init_process_group(backend="nccl")
    net = torch.nn.Linear(2, 2)
    if args.local_rank != -1:
        net = DistributedDataParallel(net, device_ids=[args.local_rank])
    net(torch.zeros(1, 2)).sum().backward()

if __name__ == "__main__":
    main()
"""


def test_arguments_have_the_name_of_the_function_that_reads_them(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(RETURNED)
    done = run("patch", script)
    assert "not patched" not in done.stderr, done.stderr
    before, after = script.read_text().split("def main")
    assert "use_cuda = torch.cuda.is_available() and not args.no_cuda" in after
    assert "[args.local_rank] if args.device.type == 'cuda' else None" in after
    assert "opts." not in after
    assert "args." not in before
