"""DF318: a loss that bends a mean over the batch, such as the root of a mean square."""

from __future__ import annotations

import pytest
from cases import found

SCRIPT = """
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
class Root(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mse = torch.nn.MSELoss()
    def forward(self, x, y):
        return torch.sqrt(self.mse(x, y) + 1e-6)
class Focal(torch.nn.Module):
    def forward(self, x, y):
        loss = F.cross_entropy(x, y)
        return (1 - torch.exp(-loss)) ** 2 * loss
root, focal, scale = Root(), Focal(), torch.nn.Parameter(torch.zeros(1))
model = torch.nn.DataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data, 4):
    optimizer.zero_grad()
    out = model(x)
    {step}
    loss.backward()
    optimizer.step()
"""
BENT = [
    "loss = torch.sqrt(F.mse_loss(out, y))",
    "loss = F.mse_loss(out, y).sqrt()",
    "loss = F.mse_loss(out, y) ** 0.5",
    "loss = root(out, y)",
    "loss = focal(out, y)",
    "loss = (F.cross_entropy(out, y) - 0.1).abs() + 0.1",
    "loss = 0.1 * torch.log(((out - y) ** 2).mean())",
    "loss = -10 * torch.log10(1.0 / F.mse_loss(out, y))",
    "loss = torch.norm(out - y)",
    "rest = out - y; loss = rest.norm()",
]
STRAIGHT = [
    "loss = F.mse_loss(out, y)",
    "loss = torch.sqrt(F.mse_loss(out, y, reduction='none')).mean()",
    "loss = (out - y).pow(2).mean()",
    "loss = ((out - y) ** 2).sum(1).sqrt().mean()",
    "loss = torch.exp(-scale) * F.mse_loss(out, y) + scale",
    "loss = F.mse_loss(out, y) + sum((p ** 2).sum() for p in model.parameters()) ** 0.5",
    "loss = torch.norm(out - y, dim=1).mean()",
    "loss = F.mse_loss(out, y) + torch.norm(model.head.weight)",
    "loss = F.mse_loss(out, y, reduction='none').max(1)[0].mean()",
    "loss = F.mse_loss(out, y); shown = torch.sqrt(loss)",
]


@pytest.mark.parametrize("step", BENT)
def test_it_is_told(step: str) -> None:
    (finding,) = found("DF318", SCRIPT.format(step=step))
    assert "bends a mean" in finding.because


@pytest.mark.parametrize("step", STRAIGHT)
def test_a_mean_is_left_alone(step: str) -> None:
    assert [finding.because for finding in found("DF318", SCRIPT.format(step=step))] == []


IN_STEPS = [
    ("z = (out - out.mean(0)) / out.std(0); loss = (z.t() @ z).pow(2).sum()", "std is that of"),
    ("p = out.softmax(1); loss = F.mse_loss(out, y) + p.mean(0).log().sum()", "the logarithm of"),
    ("losses = F.mse_loss(out, y, reduction='none'); loss = losses.var()", "var is that of"),
    ("w = torch.softmax(out, dim=0); loss = F.mse_loss(w, y)", "softmax shares out"),
    ("r = (out - out.mean()) / (out.std() + 1e-8); loss = F.mse_loss(r, y)", "out.std() is that"),
    ("w = out / out.max(); loss = (w * F.mse_loss(out, y)).mean()", "out.max() is of the whole"),
    ("w = 1 / torch.bincount(y); loss = (w[y] * out).mean()", "torch.bincount(y) counts in the"),
    (
        "each = F.mse_loss(out, y, reduction='none'); kept = torch.argsort(each)[:3]\n"
        "    loss = F.mse_loss(out[kept], y[kept])",
        "argsort chooses by their losses",
    ),
    ("z = out - y\n    loss = (z.t() @ z).pow(2).sum()", "sums over the batch"),
]


@pytest.mark.parametrize(("step", "told"), IN_STEPS)
def test_so_is_what_a_step_itself_computes_of_the_batch(step: str, told: str) -> None:
    (finding,) = found("DF318", SCRIPT.format(step=step))
    assert told in finding.because


@pytest.mark.parametrize(
    "step",
    [
        "loss = F.mse_loss(out, y); spread = out.std(0); print(spread)",
        "loss = F.mse_loss(out, y); print(out / out.max(), torch.bincount(y))",
        "longest = lengths.max(); loss = F.mse_loss(out[:, :longest], y)",
        "y = torch.stack([each / each.max() for each in y]); loss = F.mse_loss(out, y)",
    ],
)
def test_what_no_loss_is_made_of_is_left_alone(step: str) -> None:
    assert found("DF318", SCRIPT.format(step=step)) == []


@pytest.mark.parametrize(
    "step",
    [
        "loss = F.cross_entropy(out, y, reduction='none').max()",
        "each = F.mse_loss(out, y, reduction='none'); loss = torch.median(each)",
    ],
)
def test_a_choice_among_the_examples_is_told(step: str) -> None:
    (finding,) = found("DF318", SCRIPT.format(step=step))
    assert "chooses in the batch of one rank" in finding.because
