"""Several optimizers of one backward pass, data that may only iterate, passes counted anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import fixed
from ddpfix.patcher.engine.patch import patch

TWO = """
import torch
from torch.utils.data import DataLoader

first, second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)
one = torch.optim.SGD(first.parameters(), 0.1)
two = torch.optim.SGD(second.parameters(), 0.1)
for epoch in range(2):
    for x, y in DataLoader(data, batch_size=8, shuffle=True):
        loss = torch.nn.functional.mse_loss(second(first(x)), y)
        one.zero_grad()
        two.zero_grad()
        loss.backward()
        {steps}
"""
CLIP = "torch.nn.utils.clip_grad_norm_(second.parameters(), 0.1)"
BOTH = "average_gradients(one)\n        average_gradients(two)\n        torch.nn.utils.clip"
GAN = f"one.step()\n        second(x).mean().backward()\n        {CLIP}\n        two.step()"
IN_GAN = (
    "average_gradients(one)\n        one.step()\n        second(x).mean().backward()\n"
    f"        average_gradients(two)\n        {CLIP}"
)


@pytest.mark.parametrize(
    ("steps", "averaged"),
    [
        (f"{CLIP}\n        one.step()\n        two.step()", BOTH),
        (
            f"one.step()\n        {CLIP}\n        two.step()",
            "average_gradients(two)\n        torch",
        ),
        (GAN, IN_GAN),
    ],
)
def test_what_is_clipped_above_the_step_of_another_is_averaged_first(
    steps: str, averaged: str
) -> None:
    assert averaged in fixed("DF204", TWO.format(steps=steps))


STREAM = """
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Walks(IterableDataset):
    def __iter__(self):
        yield from walk()

class Graphs(Dataset):
    def __getitem__(self, index):
        return graph(index)

if args.walks:
    data = Walks()
else:
    data = {other}
net = torch.nn.DataParallel(torch.nn.Linear(4, 2))
for epoch in range(3):
    for x in DataLoader(data, batch_size=2):
        net(x).mean().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    "other",
    [
        *("Graphs()", "Walks()", "load_dataset('c4', streaming=True)['train'].map(words)"),
        "rows.to_iterable_dataset()",
    ],
)
def test_data_that_iterates_by_one_option_takes_no_sampler(other: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(STREAM.format(other=other))
    assert "its data set only iterates and takes no sampler" in patch(path).refusal


@pytest.mark.parametrize(
    ("data", "is_dealt"),
    [
        ("load_dataset('c4', split='train', streaming=True).shuffle(seed=1)", False),
        ("load_dataset('c4', split='train').shuffle(seed=1)", True),
        ("load_dataset('c4', split='train', streaming=False)", True),
    ],
)
def test_streaming_data_takes_no_sampler(data: str, is_dealt: bool, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(STREAM.replace("if args.walks:\n    data = Walks()\nelse:\n    ", "")
                    .format(other=data))  # fmt: skip
    assert (patch(path).refusal == "") is is_dealt


PASSES = """
import torch
from torch.utils.data import DataLoader

def train(epoch, net, loader, steps):
    done = 0
    while done <= steps:
        for x in loader:
            done += 1
            net(x).mean().backward()
            optimizer.step()
            if done >= steps:
                break

def main():
    net = torch.nn.DataParallel(torch.nn.Linear(4, 2))
    loader = DataLoader(data, batch_size=2, shuffle=True)
    {calls}

main()
"""


@pytest.mark.parametrize(
    ("calls", "number"),
    [
        (
            "for epoch in range(3):\n        train(epoch, net, loader, 9)",
            "loader.sampler.epoch + 1",
        ),
        ("train(0, net, loader, 9)", "done"),
    ],
)
def test_passes_that_each_epoch_counts_anew_have_orders_of_their_own(
    calls: str, number: str, tmp_path: Path
) -> None:
    path = tmp_path / "train.py"
    path.write_text(PASSES.format(calls=calls))
    assert f"loader.sampler.set_epoch({number})" in patch(path).diff()


INSIDE = """
import torch
from torch.utils.data import DataLoader

def fit(net, loader, epochs):
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def train():
        for x in loader:
            net(x).mean().backward()
            optimizer.step()

    for epoch in range(epochs):
        train()

fit(torch.nn.DataParallel(torch.nn.Linear(4, 2)), DataLoader(data, shuffle=True), 3)
"""


def test_a_function_inside_of_another_goes_over_its_loader(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(INSIDE)
    assert "        if isinstance(loader.sampler, DistributedSampler):\n" in patch(path).diff()
    assert "loader.sampler.set_epoch(epoch)" in patch(path).diff()
