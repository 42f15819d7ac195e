"""A switch that all calls and objects leave alone: which branch of a loss is the program's."""

from __future__ import annotations

import pytest
from cases import found

SCRIPT = """
import torch
import torch.nn.functional as F
class Focal(torch.nn.Module):
    def __init__(self, gamma=2.0, average=True, reduction="mean"):
        super().__init__()
        self.gamma, self.average = gamma, average
        self.reduction = reduction
    def forward(self, x, y):
        loss = (1 - x) ** self.gamma * F.cross_entropy(x, y, reduction="none")
        {end}
def nll(x, y, total=False):
    if total:
        return F.nll_loss(x, y, reduction="sum")
    return F.nll_loss(x, y)
criterion = {made}
model = torch.nn.DataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in torch.utils.data.DataLoader(data):
    optimizer.zero_grad()
    {step}
    loss.backward()
    optimizer.step()
"""
SWITCH = """if self.average:
            return loss.mean()
        return loss.sum()"""
WORD = """if self.reduction == "sum":
            return loss.sum()
        elif self.reduction == "mean":
            return loss.mean()
        return loss.sum()"""
STEP = "loss = criterion(model(x), y)"


@pytest.mark.parametrize(
    ("end", "made", "step", "sums"),
    [
        (SWITCH, "Focal()", STEP, False),
        (SWITCH, "Focal(2.0, False)", STEP, True),
        (SWITCH, "Focal(average=args.average)", STEP, False),
        ("return loss.mean() if self.average else loss.sum()", "Focal(1.0)", STEP, False),
        (WORD, "Focal()", STEP, False),
        (WORD, "Focal(reduction='sum')", STEP, True),
        (SWITCH, "None", "loss = nll(model(x), y)", False),
        (SWITCH, "None", "loss = nll(model(x), y, total=True)", True),
        (SWITCH, "None", "loss = nll(model(x), y) + 0.1 * sum(p.abs().sum() for p in"
            " model.parameters())", False),
        (SWITCH, "None", "loss = nll(model(x), y) + 0.1 * model.head.weight.pow(2).sum()", False),
    ],
)  # fmt: skip
def test_the_branch_that_runs_tells_whether_a_loss_sums(
    end: str, made: str, step: str, sums: bool
) -> None:
    text = SCRIPT.format(end=end, made=made, step=step)
    assert bool(found("DF312", text)) is sums
