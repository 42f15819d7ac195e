"""DF204, DF308: models that another training trains otherwise than the one before."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import found
from ddpfix.patcher.engine.patch import patch
from forked import Forge
from started_ranks import results

SCRIPT = """\
import json
import os
import sys

import torch
from torch.utils.data import DataLoader

torch.manual_seed(0)
data = torch.rand(24, 4)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 4)
        self.head = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))

    def turn(self):
        {turn}


def switch(part, value):
    for parameter in part.parameters():
        parameter.requires_grad = value


def train(model, optimizer):
    for epoch in range(2):
        for x in loader:
            optimizer.zero_grad()
            loss = (model(x) - 1).square().mean()
            loss.backward()
            optimizer.step()


class Trainer:
    def first(self):
        switch(model.body, False)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def second(self):
        switch(model.body, True)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))


loader = DataLoader(data, batch_size=int(sys.argv[1]), shuffle=False)
model = Net()
{first}
train(model, torch.optim.SGD(model.parameters(), lr=0.1))
{second}
train(model, torch.optim.SGD(model.parameters(), lr=0.1))
weights = [parameter.sum().item() for parameter in model.parameters()]
with open(sys.argv[2] + os.environ.get("RANK", ""), "w") as file:
    json.dump(weights, file)
"""


def script(first: str = "pass", second: str = "pass", turn: str = "pass") -> str:
    return SCRIPT.format(first=first, second=second, turn=turn)


CHANGED = {
    "thawed": script("switch(model.body, False)", "switch(model.body, True)"),
    "thawed by a trainer": script(second="Trainer().first()\nTrainer().second()"),
    "thawed by a method": script("switch(model.body, False)", "model.turn()",
                                 "switch(self.body, True)"),
    "a new head": script(second="model.head = torch.nn.Linear(4, 1)"),
    "a new head by a method": script(second="model.turn()",
                                     turn="self.head = torch.nn.Linear(4, 1).cpu()"),
    "one part more": script(second="model.turn()",
                            turn='self.add_module("tail", torch.nn.Linear(1, 1))'),
}  # fmt: skip
ALIKE = {
    "frozen in both": script("switch(model.body, False)"),
    "frozen in the second": script(second="model.body.requires_grad_(False)"),
    "a head ahead of both": script("model.head = torch.nn.Linear(4, 1)"),
    "no part with weights": script(second="model.loss = torch.nn.MSELoss()"),
    "a part of something else": script(second="loader.head = torch.nn.Linear(4, 1)"),
}


@pytest.mark.parametrize("text", CHANGED.values(), ids=CHANGED)
def test_gradients_are_averaged_by_hand(text: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(text)
    (change,) = patch(path).changes
    assert "average_gradients(optimizer)\n" in change.text
    assert "over_ranks(" not in change.text


@pytest.mark.parametrize("text", ALIKE.values(), ids=ALIKE)
def test_a_model_that_is_the_same_in_both_goes_through_its_wrapper(
    text: str, tmp_path: Path
) -> None:
    path = tmp_path / "train.py"
    path.write_text(text)
    (change,) = patch(path).changes
    assert "over_ranks(model, find_unused_parameters=True)(x)" in change.text
    assert "average_gradients" not in change.text


WRAPPED = script(second="model.module.head = torch.nn.Linear(4, 1)").replace(
    "model = Net()\n", "model = torch.nn.parallel.DistributedDataParallel(Net())\n"
)


def test_a_part_behind_the_wrapper_is_told() -> None:
    (finding,) = found("DF308", WRAPPED)
    assert "puts a part into a model between trainings" in finding.because
    anew = WRAPPED.replace(
        "Linear(4, 1)\ntrain(",
        "Linear(4, 1)\nmodel = torch.nn.parallel.DistributedDataParallel(model.module)\ntrain(",
    )
    assert anew != WRAPPED
    assert found("DF308", anew) == []


@pytest.mark.parametrize("which", ["thawed", "a new head"])
def test_two_ranks_train_both_to_the_weights_of_one(
    which: str, tmp_path: Path, forge: Forge
) -> None:
    path = tmp_path / "train.py"
    path.write_text(CHANGED[which])
    (change,) = patch(path).changes
    of_ranks = tmp_path / "of_ranks.py"
    of_ranks.write_text(change.text)
    alone, ranks = results(forge, path, of_ranks, 12)
    assert ranks == [pytest.approx(alone, rel=1e-4)] * 2
