"""Steps with the batches of several loaders, which lists and dictionaries hold."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from cases import fixed, module, written
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.engine.patch import patch
from forked import Forge

TWO = "first, second = DataLoader(mine), DataLoader(yours)\n"
STEP = "model(batch).backward()\n"
ENDLESS = """
def endless(loader):
    while True:
        yield from loader
"""
DRAWN = "for step in range(9):\n    for source in sources:\n        batch = next(source)\n"
FOUND = [
    # What it is, and a script that trains with both loaders.
    ("in a list", TWO + "for loader in [first, second]:\n    for batch in loader:\n        "
        + STEP),
    ("with their numbers", TWO + "both = [first, second]\nfor i, loader in enumerate(both):\n"
        "    for j, batch in enumerate(loader):\n        " + STEP),
    ("with their names", TWO + "for name, loader in zip(names, [first, second]):\n"
        "    for batch in loader:\n        " + STEP),
    ("in a dictionary", TWO + "both = dict(a=first, b=second)\nfor name, loader in both.items():\n"
        "    for batch in loader:\n        " + STEP),
    ("by a key", TWO + "both = {'a': first, 'b': second}\nfor name in both:\n"
        "    for batch in both[name]:\n        " + STEP),
    ("put in one after the other", TWO + "both = []\nboth.append(first)\nboth.append(second)\n"
        "for loader in both:\n    for batch in loader:\n        " + STEP),
    ("put in under keys", TWO + "both = {}\nboth['a'] = first\nboth['b'] = second\n"
        "for loader in both.values():\n    for batch in loader:\n        " + STEP),
    ("passed to a function", TWO + "def train(both):\n    for loader in both:\n"
        "        for batch in loader:\n            " + STEP + "train([first, second])"),
    ("passed to a function in turn", TWO + "def train(loader):\n    for batch in loader:\n"
        "        " + STEP + "for each in (first, second):\n    train(each)"),
    ("joined", TWO + "for batches in zip(*[first, second]):\n    batch = cat(batches)\n    "
        + STEP),
    ("without end", TWO + ENDLESS + "sources = [endless(first), endless(second)]\n" + DRAWN
        + "        " + STEP),
    ("without end, by a comprehension", TWO + ENDLESS + "both = [first, second]\n"
        "sources = [endless(loader) for loader in both]\n" + DRAWN + "        " + STEP),
    ("one that is drawn", TWO + ENDLESS + "sources = [endless(first), endless(second)]\n"
        "for step in range(9):\n    batch = next(random.choice(sources))\n    " + STEP),
    ("iterators of a dictionary", TWO + "both = {'a': first, 'b': second}\n"
        "sources = {name: iter(loader) for name, loader in both.items()}\n"
        "for step in range(9):\n    for name in both:\n        batch = next(sources[name])\n"
        "        " + STEP),
]  # fmt: skip
UNKNOWN = [
    ("one that is not known", TWO + "for loader in [first, other()]:\n"
        "    for batch in loader:\n        " + STEP),
    ("a list that a function fills", TWO + "both = [first]\nmore(both)\ndef more(loaders):\n"
        "    loaders.append(other())\nfor loader in both:\n    for batch in loader:\n        "
        + STEP),
    ("a list that is added to", TWO + "both = [first, second]\nboth += others()\n"
        "for loader in both:\n    for batch in loader:\n        " + STEP),
    ("steps with one of them alone", TWO + "for name, loader in zip(names, [first, second]):\n"
        "    for batch in loader:\n        if name == kind:\n            " + STEP),
    ("steps by a number of theirs", TWO + "for i, loader in enumerate([first, second]):\n"
        "    trains = i == 0\n    for batch in loader:\n        if trains:\n            " + STEP),
    ("steps with one of them, by what it is", TWO + "for i, loader in enumerate([first, second]):\n"
        "    trains = loader is first\n    for batch in loader:\n        if trains:\n"
        "            " + STEP),
]  # fmt: skip


def loaders_of(text: str) -> set[str]:
    """The data of the loaders that a script trains with."""
    head = "import random\nfrom torch.utils.data import DataLoader\n"
    (loop,) = Program(module(head + textwrap.dedent(text))).train_loops
    every = () if loop.loader is None else (loop.loader, *loop.loader.others, *loop.beside)
    return {each.module.text(each.dataset) for each in every if each.dataset is not None}


@pytest.mark.parametrize("text", [row[1] for row in FOUND], ids=[row[0] for row in FOUND])
def test_all_loaders_are_found(text: str) -> None:
    assert loaders_of(text) == {"mine", "yours"}


@pytest.mark.parametrize("text", [row[1] for row in UNKNOWN], ids=[row[0] for row in UNKNOWN])
def test_none_is_dealt_where_another_would_be_left(text: str) -> None:
    assert loaders_of(text) == set()


RANKS = """
import torch
from torch.utils.data import DataLoader, DistributedSampler
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
loaders = [DataLoader(each, sampler=DistributedSampler(each)) for each in (mine, yours)]
{above}
for epoch in {epochs}:
    {head}
    for {target} in {source}:
        {within}
        model(batch).sum().backward()
        optimizer.step()
"""
PARTS = {
    "above": "pass", "head": "pass", "within": "pass", "target": "batch", "epochs": "range(3)",
}  # fmt: skip
EACH = "for each_loader in loaders:\n        if isinstance(each_loader.sampler, Distr"
TOLD = [
    ("joined", {"target": "batches", "source": "zip(*loaders)", "within": "batch = cat(batches)"},
        EACH),
    ("begun in each epoch", {"head": "its = [iter(each) for each in loaders]",
        "source": "range(9)", "within": "batch = next(its[0])"}, EACH),
    ("epochs in a list", {"source": "loaders[0]", "epochs": "list(range(3))"},
        "loaders[0].sampler.set_epoch(epoch)"),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "told"), [row[1:] for row in TOLD], ids=[r[0] for r in TOLD])
def test_the_sampler_of_each_learns_the_epoch(parts: dict[str, str], told: str) -> None:
    assert told in fixed("DF402", RANKS.format(**{**PARTS, **parts}))


def test_the_sampler_of_each_in_its_turn_learns_the_epoch() -> None:
    text = RANKS.format(**{**PARTS, "source": "loaders[i]"})
    text = text.replace("    for batch", "    for i in range(2):\n     for batch")
    assert "loaders[i].sampler.set_epoch(epoch + i)" in fixed("DF402", text)


SCRIPT = """
import json
import os
import sys
import torch
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

size = 8 // int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(0)
data = [TensorDataset(torch.randn(n, 4), torch.randn(n, 1)) for n in (32, 16)]
net = torch.nn.Linear(4, 1)
make = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[os.environ.get("KIND", "sgd")]
optimizer = make(net.parameters(), lr=0.1)
""" + ENDLESS + """
loaders = {name: DataLoader(each, batch_size=size) for name, each in zip("ab", data)}
sources = [endless(each) for each in loaders.values()]
for epoch in range(2):
    for name, loader in loaders.items():
        for inputs, labels in loader:
            optimizer.zero_grad()
            mse_loss(net(inputs), labels).backward()
            optimizer.step()
for step in range(5):
    optimizer.zero_grad()
    loss = 0
    for source in sources:
        inputs, labels = next(source)
        loss = loss + mse_loss(net(inputs), labels)
    loss.backward()
    optimizer.step()
with open(f"{sys.argv[1]}.{os.environ.get('RANK', 0)}", "w") as file:
    json.dump([float(v) for p in net.parameters() for v in p.flatten()], file)
"""  # fmt: skip


def test_ranks_train_with_all_of_them_as_one_process_does(forge: Forge, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    result = patch(script)
    assert result.refusal == ""
    (change,) = result.changes
    (alone,) = written(forge, tmp_path, "original", SCRIPT, None)
    assert written(forge, tmp_path, "patched", change.text, None) == [alone]
    for ours in written(forge, tmp_path, "ranks", change.text, 2):
        assert ours == pytest.approx(alone, rel=1e-4, abs=2e-6)
