"""Ranks load checkpoints whose keys begin with `module.`, also where they train nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import written
from ddpfix.patcher.engine.patch import patch
from forked import Forge

SCRIPT = """\
import json
import os
import sys

import torch
from torch.utils.data import DataLoader

data = torch.arange(16.0).reshape(8, 2)
path = os.path.join(os.path.dirname(sys.argv[1]), "model.pt")


class Net(torch.nn.Module):
    def __init__(self, pretrained):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        if pretrained is not None:
            whole = torch.nn.DataParallel(self.layer)
            whole.load_state_dict(pretrained)

    def forward(self, x):
        return self.layer(x)


def train():
    ones = {"module.weight": torch.ones(1, 2), "module.bias": torch.ones(1)}
    model = torch.nn.DataParallel(Net(ones))
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    for batch in DataLoader(data, batch_size=8 // int(os.environ.get("WORLD_SIZE", 1))):
        model(batch).mean().backward()
        optimizer.step()
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        torch.save(model.state_dict(), path)


def test():
    model = torch.nn.DataParallel(Net(None)).float()
    model.load_state_dict(torch.load(path))
    model.eval()
    with torch.no_grad():
        return [model(batch).tolist() for batch in DataLoader(data, batch_size=4)]


def main():
    if len(sys.argv) == 2:
        train()
    scores = test()
    with open(f"{sys.argv[1]}.{os.environ.get('RANK', 0)}", "w") as file:
        json.dump(scores, file)


main()
"""


@pytest.fixture
def patched(tmp_path: Path) -> str:
    script = tmp_path / "run.py"
    script.write_text(SCRIPT)
    result = patch(script)
    assert result.refusal == ""
    (change,) = result.changes
    return change.text


def test_a_checkpoint_of_one_process_is_tested_on_two_ranks(
    patched: str, forge: Forge, tmp_path: Path
) -> None:
    (alone,) = written(forge, tmp_path, "original", SCRIPT, None)
    assert written(forge, tmp_path, "patched", patched, None) == [alone]
    first, second = written(forge, tmp_path, "ranks", patched, 2)
    assert first == second == alone


def test_the_wrapper_stays_where_keys_are_loaded_into_it(patched: str) -> None:
    assert "getattr(" not in patched
    assert patched.count("device_ids=[torch.cuda.current_device()] if") == 3  # and one of DDP
