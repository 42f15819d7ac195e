"""DF312: losses that a step adds up example by example."""

from __future__ import annotations

import pytest
from cases import found

SCRIPT = """
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
model = torch.nn.DataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = torch.nn.CrossEntropyLoss()
for x, y in DataLoader(data, 4):
    optimizer.zero_grad()
    out = model(x)
    loss = 0.0
    {step}
    loss.backward()
    optimizer.step()
"""
LOOP = "for {}:\n        loss {}"
SUM = "total = 0.0\n    for first, last in y.data:\n        total += criterion({}, 0)\n    {}"
TOLD = [
    LOOP.format("j in range(len(x))", "+= criterion(out[j], y[j])"),
    LOOP.format("j in range(x.size(0))", "= loss + criterion(out[j], y[j])"),
    LOOP.format("j in range(x.size()[0])", "+= criterion(out[j], y[j])"),
    LOOP.format("a, b in zip(out, y)", "+= criterion(a, b)"),
    LOOP.format("j, (a, b) in enumerate(zip(out, y))", "+= criterion(a, b)"),
    LOOP.format("first, last in y", "+= criterion(out[first:last], out[first:last])"),
    LOOP.format("i, (first, last) in enumerate(y)", "+= criterion(out[first:last, 0], i)"),
    SUM.format("out[first:last]", "loss += 0.5 * total"),
    SUM.format("torch.narrow(out, 0, first, last - first)", "loss = loss + total"),
    "loss = sum(criterion(a, b) for a, b in zip(out, y))",
    "losses = [criterion(a, b) for a, b in zip(out, y)]; loss = sum(losses)",
]
LEFT = [
    LOOP.format("first, last in groups", "+= criterion(out[:, first:last], y[:, first:last])"),
    SUM.format("out[first:last]", "loss += total / len(y)"),
    SUM.format("out[first:last]", "loss += total.detach()"),
    SUM.format("torch.narrow(out, 1, first, last - first)", "loss += total"),
    LOOP.format("c in range(3)", "+= criterion(out[:, c], y[:, c])"),
    LOOP.format("part in out", "+= criterion(part, y)"),
    LOOP.format("j in range(len(x))", "+= criterion(out[j], y[j])") + "\n    loss = loss / len(x)",
    LOOP.format("a, b in zip(out, y)", "+= criterion(a, b)") + "\n    loss /= len(x)",
    "losses = [criterion(a, b) for a, b in zip(out, y)]; loss = sum(losses) / len(losses)",
]


@pytest.mark.parametrize("step", TOLD)
def test_it_is_told(step: str) -> None:
    (finding,) = found("DF312", SCRIPT.format(step=step))
    assert "adds up what each of" in finding.because


@pytest.mark.parametrize("step", LEFT)
def test_other_sums_are_left_alone(step: str) -> None:
    assert [finding.because for finding in found("DF312", SCRIPT.format(step=step))] == []
