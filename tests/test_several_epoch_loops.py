"""DF402: trainings one after another that count their epochs each in a loop of its own."""

from __future__ import annotations

import pytest
from cases import fixed, found

SCRIPT = """\
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def train_epoch(net, loader, optimizer):
    for x, y in loader:
        net(x).mean().backward()
        optimizer.step()

def main(data, teacher, student, optimizer):
    torch.distributed.init_process_group("gloo")
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
    {first}train_epoch(teacher, loader, optimizer)
    for epoch in range(9):
        train_epoch(student, loader, optimizer)

main(data, teacher, student, optimizer)
"""


@pytest.mark.parametrize(
    "first", ["for epoch in range(3):\n        ", "while not done():\n        "]
)
def test_the_function_of_both_tells_the_next_epoch(first: str) -> None:
    text = fixed("DF402", SCRIPT.format(first=first))
    assert (
        "    if isinstance(loader.sampler, DistributedSampler):\n"
        "        loader.sampler.set_epoch(loader.sampler.epoch + 1)\n"
        "    for x, y in loader:\n"
    ) in text
    assert not found("DF402", text)


def test_a_lone_pass_before_is_no_epoch() -> None:
    text = SCRIPT.format(first="")
    assert "set_epoch" not in fixed("DF402", text)


BRANCHES = """\
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def main(args, net, data, optimizer):
    torch.distributed.init_process_group("gloo")
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    {above}
    if args.plain:
        for epoch in range(3):
            {told}
            for x, y in loader:
                net(x).mean().backward()
                optimizer.step()
    else:
        for round in range(3):
            for x, y in loader:
                (net(x).mean() + penalty(net)).backward()
                optimizer.step()

main(*things())
"""


@pytest.mark.parametrize(
    ("above", "told", "after"),
    [
        ("pass", "sampler.set_epoch(epoch)", 1),
        ("pass", "pass", 2),
        ("sampler.set_epoch(args.start)", "pass", 0),
    ],
)
def test_another_training_of_the_function_tells_no_epoch_of_this_one(
    above: str, told: str, after: int
) -> None:
    text = BRANCHES.format(above=above, told=told)
    assert len(found("DF402", text)) == after
    assert fixed("DF402", text).count("loader.sampler.set_epoch(") == after
