"""DF310: losses that a step divides by a sum over its own batch, however that is spelled."""

from __future__ import annotations

import pytest
from cases import found

SCRIPT = """
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
def collate(batch):
    rows = torch.nn.utils.rnn.pad_sequence(batch, batch_first=True, padding_value={padding})
    return rows, rows, torch.tensor([len(row) for row in batch])
def divided(logits, wanted, norm):
    loss = F.cross_entropy(logits, wanted, reduction="sum")
    return loss / norm
class Compute:
    def __call__(self, x, y, norm):
        return criterion(x, y) / norm
{parts}
criterion = torch.nn.CrossEntropyLoss(reduction="sum")
weights = torch.ones(3)
compute = Compute()
model = torch.nn.DataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for ids, tags, lengths in DataLoader(data, 4, collate_fn=collate):
    optimizer.zero_grad()
    {step}
    loss.backward()
    optimizer.step()
"""


FOCAL = """
class Focal(torch.nn.Module):
    def forward(self, x, target):
        positive = F.one_hot(target, 3)[:, 0].sum()
        return F.mse_loss(x, target, reduction="none").sum() / positive.clamp(min=1)
focal = Focal()
"""
MEAN = """
def mean_of(values, mask):
    return (values * mask.float()).sum() / mask.sum().clamp(min=1)
"""


def script(step: str, padding: int = 0, parts: str = "") -> str:
    return SCRIPT.format(step=step, padding=padding, parts=parts)


NOTED = [
    "loss = F.cross_entropy(model(ids), tags, reduction='sum') / lengths.sum()",
    "n = lengths.sum().item(); loss = criterion(model(ids), tags) / n",
    "n = (tags != 0).sum(); loss = divided(model(ids), tags, n)",
    "loss = divided(model(ids), wanted=tags, norm=lengths.sum())",
    "loss = compute(model(ids), tags, lengths.sum())",
    "loss = mean_of(F.cross_entropy(model(ids), tags, reduction='none'), ids > 0)",
    "loss = focal(model(ids), tags)",
    "loss = 0\n    for t in range(9):\n        loss += criterion(model(ids)[:, t], tags[:, t])\n"
    "    loss = loss / lengths.sum()",
    "loss = criterion(model(ids), tags); loss /= max(lengths.sum(), 1)",
]

LEFT = [
    "loss = criterion(model(ids), tags) / len(ids)",
    "loss = divided(model(ids), tags, ids.size(0))",
    "loss = F.cross_entropy(model(ids), tags) / weights.sum()",
    "loss = (F.cross_entropy(model(ids), tags, reduction='none') / lengths).mean()",
    "loss = F.cross_entropy(model(ids), tags); accuracy = (ids == tags).sum() / lengths.sum()",
    "loss = F.cross_entropy(model(ids), tags)",
]


@pytest.mark.parametrize("step", NOTED)
def test_it_is_told(step: str) -> None:
    assert any(
        "mean is over" in finding.because
        for finding in found("DF310", script(step, 0, MEAN + FOCAL))
    )


@pytest.mark.parametrize("step", LEFT)
def test_a_mean_over_examples_is_left_alone(step: str) -> None:
    assert [finding.because for finding in found("DF310", script(step))] == []


def test_torch_leaves_out_what_a_batch_is_filled_with() -> None:
    (finding,) = found("DF310", script("loss = F.cross_entropy(model(ids), tags)", -100))
    assert "targets that are -100" in finding.because
    part = "loss = F.cross_entropy(model(ids)[0, : lengths[0]], tags[0, : lengths[0]])"
    assert found("DF310", script(part, -100)) == []
