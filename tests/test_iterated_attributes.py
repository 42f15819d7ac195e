"""Loops over an object of the program's own that goes over a DataLoader in an attribute."""

from __future__ import annotations

import textwrap

import pytest
from cases import fixed, found, module
from ddpfix.patcher.analysis.training.program import Program

SCRIPT = """\
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


class Batches:
{own}


def train(batches, epoch):
    for batch in batches:
        model(batch).backward()
        optimizer.step()


torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
{made}
for epoch in range(3):
    train(batches, epoch)
for batch in Batches({held_out}):
    print(batch)
"""
TAKES = """
    def __init__(self, loader, device):
        self.source, self.device = None, device
        self.source = {source}
    def __len__(self):
        return len(self.source)
"""
MAKES = """
    def __init__(self, data, train):
        self.loader = DataLoader(data, shuffle=train)
    def __iter__(self):
        return iter(self.loader)
"""
WAYS = {
    "a generator": "for batch in self.source:\n        yield batch.to(self.device)",
    "a comprehension": "return (each.to(self.device) for each in self.source)",
    "its iterator": "return iter(self.source)",
    "what it yields from": "yield from self.source",
    "numbers": "for number, each in enumerate(self.source):\n        yield each",
    "a few of them": "for i, each in enumerate(self.source):\n        if i > 3:\n"
    "            break\n        yield each",
    "two kinds": "for each in self.source:\n        if isinstance(each, dict):\n"
    "            yield each['x']\n        else:\n            yield each",
    "one ahead": "first = True\n    for each in self.source:\n        if not first:\n"
    "            yield batch\n        first = False\n        batch = each.to(self.device)\n"
    "    yield batch",
    "a shuffled batch": "for each in self.source:\n        rows = []\n        for row in each:\n"
    "            rows.append(row)\n        yield rows",
}
NONE = {
    "nothing that goes over it": "def batches(self):\n    return iter(self.source)",
    "another attribute": "def __iter__(self):\n    return iter(self.device)",
    "batches that it cuts anew": "def __iter__(self):\n    rows = []\n"
    "    for batch in self.source:\n        rows += batch\n        while len(rows) >= 4:\n"
    "            yield rows[:4]\n            rows = rows[4:]",
    "parts of batches": "def __iter__(self):\n    for batch in self.source:\n"
    "        for part in batch.split(4):\n            yield part",
    "batches that it leaves out": "def __iter__(self):\n    for batch in self.source:\n"
    "        if len(batch) < 4:\n            continue\n        yield batch",
    "all that it has collected": "def __iter__(self):\n    rows = []\n"
    "    for batch in self.source:\n        rows.extend(cut(batch))\n    for row in rows:\n"
    "        yield row",
}


def takes(way: str, source: str = "loader", made: str = "") -> str:
    own = TAKES.format(source=source) + textwrap.indent(way, "    ")
    made = made or "batches = Batches(DataLoader(data, shuffle=True), device)"
    return SCRIPT.format(own=own, made=made, held_out="DataLoader(held_out), device")


def loader_of(text: str) -> str | None:
    (loop,) = Program(module(text)).train_loops
    return None if loop.loader is None else loop.module.text(loop.loader.call)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_the_loader_that_an_object_gets_is_dealt_and_told_the_epoch(way: str) -> None:
    text = takes(f"def __iter__(self):\n    {way}")
    assert loader_of(text) == "DataLoader(data, shuffle=True)"
    dealt = fixed("DF401", text)
    assert "else DistributedSampler(data)), device)" in dealt
    assert "Batches(DataLoader(held_out), device)" in dealt
    told = fixed("DF402", dealt)
    assert "    if isinstance(batches.source.sampler, DistributedSampler):\n" in told


@pytest.mark.parametrize("way", NONE.values(), ids=NONE)
def test_an_object_that_goes_over_something_else_has_no_loader(way: str) -> None:
    assert loader_of(takes(way)) is None


def test_of_two_loaders_that_an_object_goes_over_none_is_taken() -> None:
    way = "def __iter__(self):\n    return zip(self.source, self.other)"
    text = takes(way).replace("self.source, self.device = None", "self.other, self.device = loader")
    text = text.replace("self.other, self.device = loader, device", "self.other = DataLoader(more)")
    assert loader_of(text) is None


def test_an_iterator_that_an_object_has_is_not_told_the_epoch() -> None:
    way = "def __iter__(self):\n    for each in self.source:\n        yield each"
    text = fixed("DF401", takes(way, "iter(loader)"))
    assert "else DistributedSampler(data)), device)" in text
    assert fixed("DF402", text) == text


def test_a_named_loader_is_told_the_epoch_by_its_own_name() -> None:
    text = takes("def __iter__(self):\n    yield from self.source")
    text = text.replace("batches = Batches(DataLoader(data", "loader = (DataLoader(data")
    text = text.replace("=True), device)", "=True))\nbatches = Batches(loader, device)")
    text = text.replace(
        "    train(batches, epoch)", "    for batch in batches:\n        step(batch)"
    )
    text = text.replace("def train(batches, epoch):\n    for batch in batches:", "def step(batch):")
    text = text.replace("    model(batch)", "model(batch)").replace("    optimizer", "optimizer")
    told = fixed("DF402", fixed("DF401", text))
    assert "for epoch in range(3):\n    if isinstance(loader.sampler, Distributed" in told


def test_a_class_that_makes_its_loader_deals_the_one_that_trains() -> None:
    made = "batches = Batches(data, True)"
    text = SCRIPT.format(own=MAKES.strip("\n"), made=made, held_out="held_out, False")
    dealt = fixed("DF401", text)
    (line,) = [line for line in dealt.splitlines() if "self.loader = " in line]
    assert "shuffle=train and (not torch.distributed.is_initialized() or not train), " in line
    assert line.endswith(" or not train) else DistributedSampler(data))")
    assert not found("DF401", dealt)
