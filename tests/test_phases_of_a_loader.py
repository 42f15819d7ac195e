"""DF401: one function makes a loader and goes over it, to train or to evaluate."""

from __future__ import annotations

import pytest
from cases import fixed, found

SCRIPT = """\
import torch
from torch.utils.data import DataLoader

def run(model, optimizer, data, split, small=False):
    is_train = split == "train"
    {above}
    loader = DataLoader(data, batch_size=4, shuffle=True)
    bar = {bar}
    total = 0
    for x in bar:
        with torch.set_grad_enabled(is_train):
            loss = model(x).mean()
        total += loss.item()
        if {test}:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return total

def main():
    torch.distributed.init_process_group("gloo")
    data = torch.arange(64.0).view(32, 2)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(3):
        run(model, optimizer, data, "train")
        print(run(model, optimizer, data, "test"))

main()
"""


def script(test: str = "is_train", above: str = "pass", bar: str = "loader") -> str:
    return SCRIPT.format(test=test, above=above, bar=bar)


@pytest.mark.parametrize(
    ("test", "alone"),
    [
        ("is_train", "not is_train"),
        ("not small", "small"),
        ("split == 'train'", "split != 'train'"),
        ("optimizer is not None", "not optimizer is not None"),
    ],
)
@pytest.mark.parametrize("bar", ["loader", "tqdm(loader) if is_train else loader"])
def test_the_loader_is_dealt_where_the_function_trains(test: str, alone: str, bar: str) -> None:
    text = fixed("DF401", script(test, bar=bar))
    lone = f"(not torch.distributed.is_initialized() or {alone})"
    assert f"sampler=None if {lone} else" in text
    assert not found("DF401", text)


@pytest.mark.parametrize(
    ("test", "above"),
    [
        ("loss < 9", "pass"),
        ("is_train", "is_train = is_train and data is not None"),
        ("model.training", "pass"),
    ],
    ids=["of the batch", "bound twice", "an object's"],
)
def test_other_tests_tell_nothing_where_the_loader_is_made(test: str, above: str) -> None:
    assert "sampler=None if not torch.distributed" in fixed("DF401", script(test, above))


def test_a_bar_over_two_loaders_is_neither() -> None:
    text = script(bar="loader if is_train else DataLoader(other)")
    assert "no DataLoader of its batches could be found" in found("DF401", text)[0].because


SPLITS = """\
import torch
from torch.utils.data import DataLoader

def main(sets, splits):
    torch.distributed.init_process_group("gloo")
    for split in splits:
        print(split, len(sets[split]))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(3):
        for split in splits:
            {first}
            for x in DataLoader(sets[split], batch_size=4, shuffle=split == "train"):
                loss = model(x).mean()
                if split == "train":
                    loss.backward()
                    optimizer.step()

main(sets, ("train", "valid"))
"""


@pytest.mark.parametrize(
    ("first", "alone"),
    [
        ("pass", '(not torch.distributed.is_initialized() or split != "train")'),
        ("split = alias[split]", "not torch.distributed.is_initialized()"),
    ],
)
def test_one_of_the_splits_of_a_loop_is_dealt(first: str, alone: str) -> None:
    assert f"sampler=None if {alone} else" in fixed("DF401", SPLITS.format(first=first))
