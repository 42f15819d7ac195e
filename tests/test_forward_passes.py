"""Models that a training step forwards twice ahead of a backward pass get no buffers between."""

from __future__ import annotations

from pathlib import Path

import pytest
from ddpfix.patcher.api import patch

SCRIPT = """\
import torch
from torch.utils.data import DataLoader

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.{norm}

    def forward(self, x):
        return self.norm(x)

def lose(model, x):
    return (model(x) - model(x + 1)).mean()

net = Net()
net = torch.nn.DataParallel(net).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for epoch in range(3):
    for x in DataLoader(data, batch_size=4, shuffle=True):
        optimizer.zero_grad()
        {step}
        optimizer.step()
"""
STEPS = {
    "two in one loss": ("(net(x) - net(x + 1)).mean().backward()", True),
    "two losses that are added": (
        "real = net(x).mean()\n        fake = net(-x).mean()\n        (real + fake).backward()",
        True,
    ),
    "in a function that gets the model": ("lose(net, x).backward()", True),
    "a second one without gradients": (
        "loss = net(x).mean()\n        with torch.no_grad():\n            seen.append(net(-x))\n"
        "        loss.backward()",
        True,
    ),
    "one": ("net(x).mean().backward()", False),
    "a backward pass for each": (
        "net(x).mean().backward()\n        net(-x).mean().backward()",
        False,
    ),
    "one of two branches": (
        "if epoch:\n            loss = net(x).mean()\n        else:\n"
        "            loss = net(-x).mean()\n        loss.backward()",
        False,
    ),
    "one without gradients": (
        "with torch.no_grad():\n            goal = net(x)\n"
        "        (net(x) - goal).mean().backward()",
        False,
    ),
}


def wrapped(folder: Path, step: str, norm: str = "BatchNorm1d(4)") -> str:
    """The line by which a patched script wraps its model."""
    path = folder / "run.py"
    path.write_text(SCRIPT.format(step=step, norm=norm))
    (change,) = patch(path).changes
    (line,) = [each for each in change.text.splitlines() if "net = torch.nn.parallel.Dist" in each]
    return line


@pytest.mark.parametrize(("step", "several"), STEPS.values(), ids=STEPS)
def test_no_averages_are_sent_between_two_forward_passes(
    step: str, several: bool, tmp_path: Path
) -> None:
    assert ("broadcast_buffers=False" in wrapped(tmp_path, step)) is several


def test_without_batch_norm_there_is_nothing_to_leave(tmp_path: Path) -> None:
    step, _ = STEPS["two in one loss"]
    assert "broadcast_buffers" not in wrapped(tmp_path, step, "LayerNorm(4)")
