"""DF401: one function makes the loaders of all phases, for each key of a dictionary."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import fixed, found
from ddpfix.patcher.engine.patch import patch

SCRIPT = """\
import torch
from torch.utils.data import DataLoader

def make(size, split):
    data = torch.arange(64.0 if split == "train" else 32.0).view(-1, 2)
    {above}
    return DataLoader(data, batch_size=size, shuffle=(split == "train"))

def loaders(size):
    {made}

def evaluate(model, loader):
    total = 0.0
    with torch.no_grad():
        for x in loader:
            total += model(x).sum().item()
    return total

def main():
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    parts = loaders(4)
    for epoch in range(3):
        for x in parts["train"]:
            loss = model(x).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(evaluate(model.module, parts["val"]))

main()
"""
MADE = [
    'return {x: make(size, x) for x in ("train", "val")}',
    'return {x: make(size, split=x) for x in ["train", "val"]}',
    'parts = {}\n    for x in "train", "val":\n        parts[x] = make(size, x)\n    return parts',
]


@pytest.mark.parametrize("made", MADE)
def test_the_loader_of_the_training_alone_is_dealt(made: str) -> None:
    text = fixed("DF401", SCRIPT.format(made=made, above="pass"))
    lone = "(not torch.distributed.is_initialized() or split != 'train')"
    assert f"sampler=None if {lone} else DistributedSampler(data" in text
    assert not found("DF401", text)
    assert not found("DF503", text)  # the other one has no sampler


@pytest.mark.parametrize(
    ("made", "above"),
    [(MADE[0], "split = split.lower()"), (MADE[0].replace("size, x)", "size, x + '')"), "pass")],
)
def test_a_parameter_that_may_be_another_key_tells_nothing(made: str, above: str) -> None:
    (finding,) = found("DF401", SCRIPT.format(made=made, above=above))
    assert "no DataLoader of its batches could be found" in finding.because
    assert not finding.edits


HANDED = """\
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def batches(self, size, shuffle=False):
        return DataLoader(self, batch_size=size, shuffle=shuffle)

class Features:
    def __call__(self, split):
        return self.convert(split)

    def convert(self, split):
        return Rows()

class Trainer:
    def __init__(self, loaders):
        self.model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        first, second = loaders
        self.loaders = {{"train": first, "dev": second}}

    def fit(self):
        best, bad = 0, 0
        for epoch in range(3):
            for x in self.loaders["train"]:
                self.model(x).mean().backward()
                self.optimizer.step()
            score = {score}
            if score > best:
                best, bad = score, 0
            else:
                bad += 1
            if bad > 2:
                break

    def score(self, split="dev"):
        total = 0.0
        with torch.no_grad():
            for x in self.loaders[split]:
                total += self.model.module(x).sum().item()
        return total

def build():
    features = Features()
    loaders = features("train").batches(4, shuffle=True), features("dev").batches(4)
    return features, loaders

torch.distributed.init_process_group("gloo")
_, loaders = build()
Trainer(loaders).fit()
"""


@pytest.mark.parametrize("score", ["self.score()", 'self.score("dev")'])
def test_a_tuple_of_loaders_is_followed_to_the_table_of_an_object(score: str) -> None:
    text = fixed("DF401", HANDED.format(score=score))
    assert "or not shuffle) else DistributedSampler(self))" in text
    assert not found("DF401", text)
    assert not found("DF506", text)  # the evaluation has all examples of its own key


BY_KEYWORDS = """
import torch
from torch.utils.data import DataLoader

def train(**kwargs):
    {names}
    for batch in {loader}:
        optimizer.zero_grad()
        net(batch).mean().backward()
        optimizer.step()

def main(data):
    loader = DataLoader(data, batch_size=8, shuffle=True)
    net = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(3):
        train(net=net, optimizer=optimizer, batches={passed})

main(torch.rand(16, 2))
"""
NAMES = "net, optimizer = kwargs['net'], kwargs['optimizer']"


@pytest.mark.parametrize(
    ("names", "loader", "passed", "is_dealt"),
    [
        (f"{NAMES}\n    own = kwargs['batches']", "own", "loader", True),
        (f"{NAMES}\n    own = kwargs['batches']", "tqdm(own)", "loader", True),
        (f"{NAMES}\n    own = kwargs['batches']", "own", "read(data)", False),
        (f"{NAMES}\n    own = kwargs['other']", "own", "loader", False),
    ],
)
def test_what_a_function_gets_by_keywords_of_any_name(
    names: str, loader: str, passed: str, is_dealt: bool, tmp_path: Path
) -> None:
    path = tmp_path / "train.py"
    path.write_text(BY_KEYWORDS.format(names=names, loader=loader, passed=passed))
    diff = patch(path).diff()
    assert ("sampler=None if not torch" in diff) is is_dealt
    assert ("loader.sampler.set_epoch(epoch)" in diff) is is_dealt
