"""Scripts for one card, patched: two ranks train as one process does at the same global batch."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import written
from ddpfix.patcher.engine.patch import patch
from forked import Forge

HEAD = """\
import json
import os
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

size = 8 // int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(0)
x = torch.randn(32, 4)
data = TensorDataset(x, (x.sum(1, keepdim=True) > 0).float())
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
"""
TAIL = """
with open(f"{sys.argv[1]}.{os.environ.get('RANK', 0)}", "w") as file:
    json.dump([[round(float(v), 6) for v in p.flatten()] for p in net.parameters()], file)
"""
FLAT = """
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for epoch in range(2):
    for inputs, labels in DataLoader(data, batch_size=size):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(inputs.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
"""
SUMMED = FLAT.replace("lr=0.1", "lr=0.01").replace(
    "labels.to(device))", 'labels.to(device), reduction="sum")'
)
OPTIONS = FLAT.replace("batch_size=size", "**options").replace(
    "for epoch", 'options = {"batch_size": size}\noptions["shuffle"] = False\nfor epoch'
)
STEP = """

def train_step(model, batch, optimizer):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(batch[0].to(device)), batch[1].to(device))
    loss.backward()
    optimizer.step()
    return loss.item()


def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(2):
        for batch in DataLoader(data, batch_size=size):
            train_step(model, batch, optimizer)


net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).to(device)
train(net)
"""
CLASS = """

class Trainer:
    def __init__(self, model):
        self.model = model.to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def loss_of(self, batch):
        inputs, labels = (part.to(device) for part in batch)
        return nn.functional.binary_cross_entropy_with_logits(self.model(inputs), labels)

    def fit(self, loader):
        for batch in loader:
            loss = self.loss_of(batch)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
            self.optimizer.step()
            self.score(loader)

    @torch.no_grad()
    def score(self, loader):
        self.model.eval()
        losses = [self.loss_of(batch) for batch in loader]
        self.model.train()
        return sum(losses)


net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8, momentum=0.0).eval(), nn.Linear(8, 1))
net[1].train = lambda mode=True: net[1]
Trainer(net).fit(DataLoader(data, batch_size=size))
"""
SCRIPTS = {"flat": FLAT, "a sum": SUMMED, "options": OPTIONS, "a step": STEP, "a class": CLASS}


@pytest.mark.parametrize("body", SCRIPTS.values(), ids=SCRIPTS)
def test_two_ranks_end_with_the_parameters_of_one_process(
    body: str, forge: Forge, tmp_path: Path
) -> None:
    text = HEAD + body + TAIL
    script = tmp_path / "train.py"
    script.write_text(text)
    result = patch(script)
    assert result.refusal == ""
    (change,) = result.changes
    assert "DF204" in {each.code for each in result.findings_before}
    assert "DF204" not in {each.code for each in result.findings_after}
    (alone,) = written(forge, tmp_path, "original", text, None)
    (patched,) = written(forge, tmp_path, "patched", change.text, None)
    assert patched == alone
    first, second = written(forge, tmp_path, "ranks", change.text, 2)
    assert first == second
    for ours, theirs in zip(first, alone, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=2e-6)
