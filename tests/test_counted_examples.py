"""O5: a rate that rises or falls by the examples that a rank has seen."""

from __future__ import annotations

import pytest
from audited import audited

SCRIPT = """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

def main(args, model, data, optimizer):
    torch.distributed.init_process_group("gloo")
    model = DDP(model)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, sampler=sampler, batch_size=args.size)
    seen = 0
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for step, x in enumerate(loader):
            seen += {number}
            {use}
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
"""
RATE = "optimizer.param_groups[0]['lr'] = 1 - seen / (3 * len(data))"


@pytest.mark.parametrize(
    ("number", "use", "is_told"),
    [
        ("len(x)", RATE, True),
        ("x.size(0)", "weight = min(1, seen / 900)", True),
        ("x.size()[0]", RATE, True),
        ("args.size", RATE, True),
        ("1", RATE, False),
        ("len(x)", "print(seen / len(data))", False),
        ("len(x)", "speed = seen / 9", False),
    ],
)
def test_a_count_of_a_ranks_own_examples_is_told(number: str, use: str, is_told: bool) -> None:
    verdicts = audited(SCRIPT.format(number=number, use=use))
    assert (("O5", "unknown", 15) in verdicts) is is_told


@pytest.mark.parametrize(
    ("number", "use", "is_told"),
    [
        ("len(x)", "if seen >= args.limit: break", True),
        ("x.size(0)", "if args.limit <= seen: scheduler.step()", True),
        ("1", "if seen >= args.limit: break", False),
        ("len(x)", "if seen >= args.limit: print(seen)", False),
        ("len(x)", "if seen: print(seen); scheduler.step()", False),
    ],
)
def test_a_limit_of_a_ranks_own_examples_is_told(number: str, use: str, is_told: bool) -> None:
    verdicts = audited(SCRIPT.format(number=number, use=use))
    assert (("O5", "unknown", 15) in verdicts) is is_told
