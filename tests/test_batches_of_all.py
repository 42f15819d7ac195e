"""DF702: what divides all examples by the batch of one rank counts the steps of several."""

from __future__ import annotations

import pytest
from cases import fixed

SCRIPT = """\
import math
import torch
from functools import partial
from torch.utils.data import DataLoader, DistributedSampler

def count(examples, size, epochs):
    {inside}

class Trainer:
    def __init__(self, args, data, model):
        self.args, self.data, self.model = args, data, model
        self.loader = DataLoader(data, args.size, sampler=DistributedSampler(data))
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        {made}

    def fit(self):
        for epoch in range(3):
            self.loader.sampler.set_epoch(epoch)
            total = 0.0
            for i, batch in enumerate(self.loader):
                loss = self.model(batch).mean()
                loss.backward()
                self.optimizer.step()
                total += loss.item()
                {step}
            {end}

data = torch.load("data.pt")
torch.distributed.init_process_group("gloo")
Trainer(args, data, torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))).fit()
"""
RANKS = "(torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1)"
PLAIN = {"inside": "return 1", "made": "pass", "step": "pass", "end": "pass"}


def parts(**more: str) -> str:
    return SCRIPT.format(**(PLAIN | more))


# What it is, parts of the script, and the text that the batch of one rank becomes.
DIVIDED = [
    ("in a helper that gets the data", {
        "inside": "return math.ceil(len(examples) / size) * epochs",
        "made": "self.schedule = OneCycle(self.optimizer, count(self.data, args.size, 3))",
    }, "(size * world_size)"),
    ("in a helper that gets their number", {
        "inside": "return math.ceil(examples / size) * epochs",
        "made": "self.schedule = OneCycle(self.optimizer, count(len(data), self.args.size, 3))",
    }, "(size * world_size)"),
    ("by divmod", {
        "made": "steps, rest = divmod(len(self.data), args.size); self.total = steps + (rest > 0)",
        "step": "rate = i / self.total",
    }, "(args.size * world_size)"),
    ("times the epochs", {
        "made": "self.schedule = partial(linear, total=3 * len(data) // args.size)",
        "step": "self.schedule(i)",
    }, "(args.size * world_size)"),
    ("a part of an epoch", {
        "step": "group['lr'] = epoch + (i + 1) * self.args.size / len(self.data)",
    }, f"(self.args.size * {RANKS})"),
    ("asked of a step", {
        "step": "if (i + 1) * self.args.size >= len(self.data): self.schedule.step()",
    }, f"(self.args.size * {RANKS})"),
]  # fmt: skip

LEFT = [
    ("of other data", {"made": "self.schedule = OneCycle(len(args.other) // args.size)"}),
    ("by another size", {"made": "self.schedule = OneCycle(len(data) // args.eval_size)"}),
    ("told alone", {"made": "print('steps:', len(data) // args.size)"}),
    ("a part that is told", {"step": "print(i * self.args.size / len(self.data))"}),
    ("told under a name", {"made": "steps = len(data) // args.size; print(steps)"}),
    ("a mean of a rank's batches", {"end": "print(total / (len(self.data) / self.args.size))"}),
    ("the examples of whole batches", {"made": "self.n = len(data) // args.size * args.size"}),
    ("by the ranks", {
        "made": "self.n = len(data) // (args.size * torch.distributed.get_world_size())",
        "step": "rate = i / self.n",
    }),
    ("of a function that two call", {
        "inside": "return math.ceil(len(examples) / size)",
        "made": "self.n = count(data, args.size, 3) + count(args.other, args.size, 1)",
    }),
]  # fmt: skip


@pytest.mark.parametrize(("name", "more", "size"), DIVIDED)
def test_it_is_divided_by_the_ranks(name: str, more: dict[str, str], size: str) -> None:
    text = fixed("DF702", parts(**more))
    assert size in text, name
    assert (f"world_size = {RANKS[1:-1]}" in text) is ("* world_size" in size)
    assert fixed("DF702", text) == text


@pytest.mark.parametrize(("name", "more"), LEFT)
def test_another_number_is_left_alone(name: str, more: dict[str, str]) -> None:
    assert fixed("DF702", parts(**more)) == parts(**more), name
