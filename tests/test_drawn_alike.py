"""DF401: batches of a script without ranks, which all of them draw by one seed."""

from __future__ import annotations

from pathlib import Path

import pytest
from ddpfix.patcher.api import patch
from ddpfix.patcher.findings import Severity

SCRIPT = """\
import torch
from torch.utils.data import DataLoader


class Mixed:
    def __init__(self, sets):
        self.loaders = [iter(DataLoader(each, batch_size=4, shuffle=True)) for each in sets]

    def batch(self):
        return torch.cat([next(loader) for loader in self.loaders])


def train(sets):
    data = Mixed(sets)
    model = torch.nn.DataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = 0
    while True:
        loss = model(data.batch()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step == 10:
            break


if __name__ == "__main__":
    SEED
    train([torch.rand(64, 4), torch.rand(64, 4)])
"""


def test_one_seed_on_all_ranks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(SCRIPT.replace("SEED", "torch.manual_seed(1)"))
    assert "DF401 line 18 (no DataLoader of its batches" in patch(path).refusal


@pytest.mark.parametrize("seed", ["pass", "import random\n    random.seed(1)"])
def test_ranks_that_draw_apart_are_told_of(seed: str, tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(SCRIPT.replace("SEED", seed))
    result = patch(path)
    assert not result.refusal
    (left,) = [each for each in result.findings_after if each.code == "DF401"]
    assert left.severity is Severity.DEGRADED
