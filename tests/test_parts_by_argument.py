"""A step that calls its model for one part, then for another, before one backward pass."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import module
from ddpfix.patcher.analysis.models.parts_by_argument import called_for_parts
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.api import patch

SCRIPT = """import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.page = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x, is_query=True):
        return self.query(x) if is_query else self.page(x)

def main(accumulation=2):
    data = TensorDataset(torch.randn(16, 4), torch.randn(16, 4))
    model = nn.DataParallel(Pair())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(data, batch_size=4, shuffle=True)
    for step, (x, y) in enumerate(loader):
        {calls}
        loss = (a - b).pow(2).mean() / accumulation
        loss.backward()
        if (step + 1) % accumulation == 0:
            optimizer.step()
            optimizer.zero_grad()

if __name__ == "__main__":
    main()
"""
BOTH = "a = model(x, is_query=True)\n        b = model(y, is_query=False)"


@pytest.mark.parametrize(
    ("calls", "are_parts"),
    [
        (BOTH, True),
        ("a = model(x, True)\n        b = model(y, False)", True),
        ("a = model(x, is_query=True)\n        b = model(y, is_query=True)", False),
        ("a = model(x)\n        b = model(y)", False),
        (BOTH.replace("b = ", "a.mean().backward()\n        b = "), False),
    ],
)
def test_calls_for_several_parts_are_known(calls: str, are_parts: bool) -> None:
    program = Program(module(SCRIPT.format(calls=calls)))
    assert (called_for_parts(program) is not None) is are_parts


def test_gradients_are_then_averaged_by_hand(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(SCRIPT.format(calls=BOTH))
    result = patch(script)
    assert not result.refusal
    after = result.changes[0].text
    assert "average_gradients(optimizer)" in after
    assert "DistributedDataParallel" not in after
