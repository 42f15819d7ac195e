"""DF318: losses in which the examples of a batch have mixed, told by a walk through the step."""

from __future__ import annotations

import pytest
from cases import found

SCRIPT = """
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
torch.distributed.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(Net())
criterion = nn.CrossEntropyLoss()

def helper(x, y):
    {helper}

for i, (x, y) in enumerate(torch.utils.data.DataLoader(data, sampler=sampler)):
    x, y = x.cuda(), y.cuda()
    out, feat = model(x)
    {step}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def script(step: str, helper: str = "pass") -> str:
    return SCRIPT.format(step="\n    ".join(step.splitlines()), helper=helper)


EACH = "losses = F.cross_entropy(out, y, reduction='none')\n"
MEAN = "loss = F.cross_entropy(out, y)"
CENTRES = "[feat[y == c].mean(0) for c in range(3)]"
# What is the same for one process and for ranks, or cannot be told.
ALIKE = {
    "a mean": MEAN,
    "a sum of two": f"{MEAN} + 0.1 * feat.pow(2).sum(1).mean()",
    "micro-batches": f"{MEAN} / 4\nloss = loss * (len(x) / 64)",
    "a part that all examples are given": f"{EACH}loss = (losses + feat.pow(2).mean()).mean()",
    "the mean that a weight multiplies": f"w = min(1.0, i / 100)\n{MEAN} * w",
    "a divergence": "loss = -0.5 * torch.sum(1 + out - feat.pow(2) - out.exp())",
    "weights of each example": f"{EACH}w = (losses < 0.5).float()\nloss = (losses * w).mean()",
    "a statistic of each example": "loss = ((feat - feat.mean(1, keepdim=True)) ** 2).mean()",
    "places of each example": "loss = (feat @ feat.transpose(1, 2)).softmax(-1).mean()",
    "rows of a table": f"{EACH}loss = (losses * table[y]).mean()",
    "the length of the longest": "n = y.max()\nm = torch.arange(n) < y[:, None]\n"
        "loss = (F.cross_entropy(out, y, reduction='none') * m).mean()",
    "mixed pictures": "x, a, b, lam = helper(x, y)\n"
        "loss = lam * criterion(model(x), a) + (1 - lam) * criterion(model(x), b)",
    "a number that is only written down": f"{MEAN}\nacc = (out.argmax(1) == y).float().mean() ** 2",
    "one example after the other": "loss = sum(F.relu(f.mean() - 1) for f in feat) / len(x)",
    "picked by a number": "loss = sum(F.relu(feat[b].mean() - 1) for b in range(9))",
    "a loss that is no number": f"{MEAN}\nif torch.isnan(loss):\n    loss = 0 * out.sum()",
    "parts that may be missing": f"{MEAN}\nkeep = y > 0\nif keep.sum() > 0:\n"
        "    loss = loss + 0.1 * F.cross_entropy(out, y)",
    "differences to a teacher": "loss = (out - teacher(x)).abs().mean()",
    "the hardest pixel of each": "loss = out.flatten(1).max(1)[0].mean()",
    "views of each": "a, b = feat.chunk(2, dim=1)\nloss = (1 - F.cosine_similarity(a, b)).mean()",
    "a sum of exponents": "m = out.data.max()\nlse = (out - m).exp().sum(1).log() + m\n"
        "loss = (lse - out[:, 0]).mean()",
    "what is gathered": "m = gather_all(feat).mean(0)\nloss = ((feat - m) ** 2).mean()",
}  # fmt: skip
TOLD = {
    "centred": ("f = feat - feat.mean(0)\nloss = (f ** 2).mean()", "feat - feat.mean(0)"),
    "centred in a function": ("loss = helper(feat, y).mean()", "x - x.mean(0)"),
    "a radius": (
        "d = feat.pow(2).sum(1)\nr = torch.quantile(d, 0.9)\nloss = F.relu(d - r).mean()",
        "torch.quantile(d, 0.9) is that of the whole batch",
    ),
    "by numpy": (
        "d = feat.pow(2).sum(1)\nr = np.quantile(d.cpu().numpy(), 0.9)\n"
        "loss = F.relu(d - r).mean()",
        "np.quantile(d.cpu().numpy(), 0.9) is that of the whole batch",
    ),
    "those above the mean": (
        f"{EACH}w = losses > losses.mean()\nloss = (w * losses).mean()",
        "losses > losses.mean() joins examples",
    ),
    "by hand in a list": (
        f"{EACH}kept = sorted(losses, key=float)[:4]\nloss = sum(kept) / len(kept)",
        "ranks the examples of one rank",
    ),
    "weights of the classes in it": (
        "b = 1 - (y == 0).float().mean()\nw = torch.where(y > 0, b, 1 - b)\n"
        "loss = F.binary_cross_entropy_with_logits(out, y, weight=w)",
        "torch.where(y > 0, b, 1 - b) joins examples",
    ),
    "prototypes of the batch": (
        f"p = torch.stack({CENTRES})\nloss = torch.cdist(feat, p).mean()",
        "torch.cdist(feat, p) joins examples",
    ),
    "a gap between groups": (
        f"g = y > 0\ngap = (out[g].mean() - out[~g].mean()).abs()\n{MEAN} + gap",
        "bends a mean over the batch",
    ),
    "precision of classes": (
        "p = out.softmax(1)\ntp = (p * y).sum(0)\nloss = 1 - (tp / p.sum(0)).mean()",
        "tp / p.sum(0) divides by sums over the batch",
    ),
    "a balance of two losses": (
        "a = criterion(out, y)\nb = feat.pow(2).mean()\nloss = a + (a / b).detach() * b",
        "a / b bends a mean",
    ),
    "a product": ("a = criterion(out, y)\nloss = a * feat.pow(2).mean()", "bends a mean"),
    "the worse one": (
        "a = criterion(out, y)\nloss = torch.max(a, feat.pow(2).mean())",
        "chooses by means over the batch",
    ),
    "a part by the size of the loss": (
        f"{MEAN}\nif loss.item() < 1.0:\n    loss = loss + feat.pow(2).mean()",
        "loss.item() < 1.0 asks for one rank's mean",
    ),
    "the same in an expression": (
        "a = criterion(out, y)\nloss = a + feat.mean() if a > 0.5 else a",
        "a > 0.5 asks for one rank's mean",
    ),
    "all pairs": (
        "s = out[:, 0]\nd = s.unsqueeze(1) - s.unsqueeze(0)\nloss = F.relu(d).mean()",
        "s.unsqueeze(1) - s.unsqueeze(0) compares the examples",
    ),
    "two orders": (
        "s = torch.sort(out[:, 0])[0]\nloss = (s - torch.sort(x[:, 0])[0]).abs().mean()",
        "torch.sort(out[:, 0]) ranks the examples of one rank",
    ),
    "one cosine": (
        "loss = 1 - F.cosine_similarity(out.view(-1), y.view(-1), dim=0)",
        "is shared out among the whole batch",
    ),
}  # fmt: skip


@pytest.mark.parametrize("step", ALIKE.values(), ids=ALIKE)
def test_what_each_example_gives_is_not_told(step: str) -> None:
    mixed = "return 0.3 * x + 0.7 * x[order], y, y[order], 0.3"
    assert not found("DF318", script(step, mixed))


@pytest.mark.parametrize(("step", "because"), TOLD.values(), ids=TOLD)
def test_a_mixture_of_examples_is_noted(step: str, because: str) -> None:
    (finding,) = found("DF318", script(step, "return (x - x.mean(0)) ** 2"))
    assert because in finding.because
