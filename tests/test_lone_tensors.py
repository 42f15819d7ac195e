"""DF204: tensors that are trained beside the model of a script for one card."""

from __future__ import annotations

from pathlib import Path

import pytest
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


class Trainer:
    def __init__(self, model, loader):
        self.model, self.loader = model, loader
        self.scale = torch.nn.Parameter(torch.zeros(1))
        self.optimizer = torch.optim.SGD([*model.parameters()] + [self.scale], lr=0.1)

    def train(self):
        for x in self.loader:
            self.optimizer.zero_grad()
            loss = (self.model(x) * torch.exp(self.scale) - 1).square().mean()
            loss.backward()
            self.optimizer.step()


def main():
    model = torch.nn.Linear(4, 1)
    loader = DataLoader(data, batch_size=int(sys.argv[1]), shuffle=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scale = torch.zeros(1, requires_grad=True)
    {made}
    for epoch in range(2):
        for x in loader:
            optimizer.zero_grad()
            loss = (model(x) * torch.exp(scale) - 1).square().mean()
            loss.backward()
            optimizer.step()
            {step}
    weights = [parameter.sum().item() for parameter in (*model.parameters(), scale)]
    with open(sys.argv[2] + os.environ.get("RANK", ""), "w") as file:
        json.dump(weights, file)


main()
"""
OWN = "other = torch.optim.SGD([scale], lr=0.1)"
TRAINED = {
    "by an optimizer of its own": (OWN, "other.step()"),
    "in a group": ('optimizer.add_param_group({"params": [scale]})', "pass"),
    "as a group": ('optimizer.add_param_group({"params": scale})', "pass"),
    "by an object": ("Trainer(model, loader).train()", "pass"),
}


@pytest.mark.parametrize(("made", "step"), TRAINED.values(), ids=TRAINED)
def test_all_gradients_are_averaged_by_hand(made: str, step: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.format(made=made, step=step))
    (change,) = patch(path).changes
    assert "over_ranks(" not in change.text
    steps = change.text.count("optimizer.step()\n") + change.text.count("other.step()\n")
    averaged = [line for line in change.text.splitlines() if "  average_gradients(" in line]
    assert len(averaged) == steps - ("Trainer(model" not in made)


def test_what_no_optimizer_has_is_no_reason(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.format(made="pass", step="pass"))
    (change,) = patch(path).changes
    assert "over_ranks(model)(x)" in change.text


@pytest.mark.parametrize("which", ["by an optimizer of its own", "in a group"])
def test_two_ranks_end_with_the_weights_of_one(which: str, tmp_path: Path, forge: Forge) -> None:
    made, step = TRAINED[which]
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.format(made=made, step=step))
    (change,) = patch(path).changes
    of_ranks = tmp_path / "of_ranks.py"
    of_ranks.write_text(change.text)
    alone, ranks = results(forge, path, of_ranks, 12)
    assert ranks == [pytest.approx(alone, rel=1e-4)] * 2
