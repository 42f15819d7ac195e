"""DF318: A loss is made of the batch as a whole."""

from __future__ import annotations

import pytest
from cases import found

SCRIPT = """
import numpy as np
import torch
import torch.nn.functional as F
from pytorch_metric_learning import losses, miners
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(Net())

def {name}(x, y):
    {first}
    return {result}

class Part(torch.nn.Module):
    def forward(self, x):
        {forward}
        return x

def train(loader):
    for x, y in loader:
        optimizer.zero_grad()
        {step}
        loss.backward()
        optimizer.step()

train(torch.utils.data.DataLoader(data, sampler=sampler))
"""
PARTS = {"name": "extra_loss", "first": "pass", "result": "x.mean()", "forward": "pass"}


def script(**parts: str) -> str:
    name = parts.get("name", PARTS["name"])
    step = f"loss = {name}(model(x), y)"
    return SCRIPT.format(**{**PARTS, "step": step, **parts})


# A sentence, and a script that comes close and is right.
NOOP: list[tuple[str, str]] = [
    ("a mean over examples of logarithms",
        script(result="-(x.softmax(1).log() * y).sum(1).mean(0)")),
    ("a mean over classes in a logarithm", script(result="x.softmax(1).mean(1).log().mean()")),
    ("the use of a codebook, which is printed", script(first="mean = x.mean(0)\n    perplexity ="
        " torch.exp(-(mean * torch.log(mean + 1e-9)).sum())")),
    ("prototypes", script(first="centres = x.view(5, 5, -1).mean(0)",
        result="((y[:, None] - centres[None]) ** 2).sum(2).mean()")),
    ("the features of one picture", script(result="(x.mm(x.t()) - y).pow(2).mean()")),
    ("words of the model's own",
        script(first="own = x + 1", result="(own @ y.words.t()).log_softmax(1).mean()")),
    ("entropy of examples", script(result="entropy(x.softmax(1)).mean(0)")),
    ("attention", script(forward="x = (x @ x.transpose(-2, -1)).softmax(-1) @ x")),
    ("places of one example", script(name="correlation",
        result="torch.matmul(x.transpose(1, 2), y).mean()")),
    ("weights", script(forward="x = torch.mm(x, self.weight.t())")),
    ("a spread in no loss", script(forward="x = (x - x.mean(0)) / x.std(0)")),
    ("shares of each example", script(first="share = y.mean(1)\n    w = y * (1 / share[:, None])",
        result="(w * x).mean()")),
    ("a mean of the batch that weighs nothing", script(first="share = y.mean(0)\n    z = 1 / y",
        result="(z * x).abs().mean() + share.sum()")),
    ("the words of one example each", script(first="z = x + y",
        result="torch.matmul(z, z.transpose(1, 2)).softmax(2).mean()")),
    ("a loss of two pairs", script(step="loss = triple(model(x), y, x, y)")),
    ("what is gathered before", script(first="x = gathered_rows(x)",
        result="-(x.mean(0) * x.mean(0).log()).sum()")),
    ("one process", script(result="x.mean(0).log().sum()").replace(
        "torch.nn.parallel.DistributedDataParallel(Net())", "Net()").replace(
        "torch.distributed.init_process_group", "print")),
    ("what no step calls", script(result="x.mean(0).log().sum()", step="loss = model(x).mean()")),
    ("a step for each task", script(step="for task in x:\n            grads = torch.autograd.grad("
        "task.mean(), model.parameters(), create_graph=True)\n        loss = model(x).mean()")),
    ("the gradients of inputs", script(step="grads = torch.autograd.grad(model(x).sum(), x,"
        " create_graph=True)[0]; loss = grads.pow(2).mean()")),
    ("the rotation of each example", script(result="(torch.svd(x @ y)[0] - y).mean()")),
    ("a norm of each example's matrix",
        script(result="torch.norm(x, 'nuc', dim=(1, 2)).mean()")),
    ("the hardest pixels of each example",
        script(first="losses = crit(x, y).view(len(x), -1)", result="losses.topk(9)[0].mean()")),
    ("the hardest boxes of each example",
        script(first="losses = crit(x, y)\n    _, order = losses.sort(1, descending=True)",
            result="losses[order].mean()")),
    ("the best classes", script(result="(x.topk(5)[0] - y).mean()")),
    ("the median loss of no step", script(result="losses.topk(5)[0]",
        step="loss = model(x).mean()")),
    ("a loss of the library's that looks at one example each",
        script(first="each = losses.ArcFaceLoss(10, 4)", result="each(x, y)")),
]  # fmt: skip

LOOPED = """total = 0
    for i in range({count}):
        for j in range({count}):
            total = total + {pair}"""
NOOP += [
    (sentence, script(first=LOOPED.format(count=count, pair=pair), result=result))
    for sentence, count, pair, result in [
        ("pairs of classes", "classes", "near(x[i], x[j])", "total"),
        ("rows of one example each", "len(x)", "near(x[i], y[i]) * j", "total"),
        ("pairs that are printed", "len(x)", "near(x[i], x[j]).item()", "x.mean() + total * 0"),
        ("pairs that are no part of the loss", "len(x)", "near(x[i], x[j])", "x.mean()"),
    ]
]
TOLD: list[tuple[str, str, str]] = [
    (
        "pairs of examples in two loops",
        script(first=LOOPED.format(count="len(x)", pair="near(x[i], x[j])"), result="total / 2"),
        "near(x[i], x[j]) compares each example with the others",
    ),
    (
        "pairs in a step, by another name and a number of the batch",
        script(
            step="total, n = 0, x.size(0)\n        for i in range(n):\n"
            "            for j in range(i + 1, n):\n                other = (j + 1) % n\n"
            "                total += x[i] @ y[other]\n        loss = model(x) + total"
        ),
        "x[i] @ y[other] compares each example with the others",
    ),
    (
        "singular values of predictions",
        script(first="p = x.softmax(1)", result="-torch.svd(p)[1].mean()"),
        "torch.svd(p) has the singular values",
    ),
    (
        "in a step",
        script(step="p = model(x).softmax(1); loss = -torch.norm(p, 'nuc')"),
        "torch.norm(p, 'nuc') has the singular values",
    ),
    (
        "a step within the step",
        script(
            step="inner = model(x).mean()\n        grads = torch.autograd.grad(inner,"
            " model.parameters(), create_graph=True)\n        loss = stepped(model, grads)(x)"
        ),
        "a step within the step goes by",
    ),
    (
        "by a function that an object has",
        script(
            first="losses = F.cross_entropy(x, y, reduction='none')",
            result="losses.topk(9)[0].mean()",
            step="self.criterion = extra_loss; loss = self.criterion(model(x), y)",
        ),
        "topk chooses by their losses",
    ),
    (
        "the entropy of a mean prediction",
        script(first="mean = x.softmax(1).mean(dim=0)", result="(mean * torch.log(mean)).sum()"),
        "the logarithm of x.softmax(1).mean(dim=0) is of the whole batch",
    ),
    (
        "in one expression",
        script(result="(y / torch.mean(x, 0)).log().sum()"),
        "the logarithm of torch.mean(x, 0) is of the whole batch",
    ),
    (
        "a sum over examples for each class",
        script(result="torch.log(1 + torch.exp(x).sum(dim=0)).mean()"),
        "the logarithm of torch.exp(x).sum(dim=0) is of the whole batch",
    ),
    (
        "classes weighed by their share of the batch",
        script(
            first="share = torch.mean(y, axis=0)\n"
            "    w = torch.tensor([1.0 / each if each > 0 else 1 for each in share])",
            result="((y * w).sum(1) * x).mean()",
        ),
        "torch.mean(y, axis=0), of the whole batch, weighs its examples",
    ),
    (
        "the examples of each moment",
        script(
            first="z = torch.cat([x, y])\n    z = z.transpose(0, 1)",
            result="-F.log_softmax(torch.matmul(z, z.transpose(1, 2)), dim=-1).mean()",
        ),
        "torch.matmul(z, z.transpose(1, 2)) scores the examples of a batch",
    ),
    (
        "pairs of what is given twice",
        script(step="z = model(x); loss = criterion(z, y, z, y)"),
        "criterion() compares z, y with itself",
    ),
    ("a variance", script(result="F.relu(1 - torch.sqrt(x.var(dim=0))).mean()"), "var is that of"),
    ("a covariance", script(result="(x.T @ x / len(x)).pow(2).sum()"), "x.T @ x sums over"),
    (
        "relations of two models' features",
        script(result="(torch.mm(x, x.t()) - torch.mm(y, torch.t(y))).pow(2).mean()"),
        "x is compared with itself",
    ),
    (
        "distances of all pairs",
        script(name="pdist", result="(x.unsqueeze(0) - x.unsqueeze(1)).pow(2).sum(2)"),
        "x is compared with itself",
    ),
    (
        "a kernel",
        script(
            name="gaussian_kernel",
            first="a = x.unsqueeze(0).expand(9, 9, 4)\n    b = x.unsqueeze(1).expand(9, 9, 4)",
            result="torch.exp(-((a - b) ** 2).sum(2)).mean()",
        ),
        "x is compared with itself",
    ),
    (
        "the entropy of a mean, by a function",
        script(first="p = x.softmax(1)", result="entropy(torch.mean(p, 0), True)"),
        "entropy is that of torch.mean(p, 0), a mean over the batch",
    ),
    (
        "two views of each example",
        script(
            first="first = x[:, 0]\n    both = torch.cat(torch.unbind(x, dim=1))",
            result="torch.matmul(first, both.T).log_softmax(1).mean()",
        ),
        "first is scored against the whole batch",
    ),
    ("distances that torch computes", script(result="torch.cdist(x, x).mean()"), "it has the dis"),
    (
        "a library's loss of pairs",
        script(first="each = losses.TripletMarginLoss(margin=0.1)", result="each(x, y)"),
        "TripletMarginLoss compares",
    ),
    (
        "the hardest examples",
        script(
            first="losses = F.cross_entropy(x, y, reduction='none')",
            result="losses.topk(int(0.7 * len(x)))[0].mean()",
        ),
        "topk chooses by their losses",
    ),
    (
        "the easiest examples",
        script(
            first="losses = F.cross_entropy(x, y, reduction='none')\n"
            "    kept = np.argsort(losses.cpu().data)[:9]",
            result="F.cross_entropy(x[kept], y[kept])",
        ),
        "argsort chooses by their losses",
    ),
    (
        "the hardest pixels",
        script(
            first="losses = crit(x, y).view(-1)\n    losses, _ = torch.sort(losses, 0, True)",
            result="losses[:9].mean()",
        ),
        "sort chooses by their losses",
    ),
    (
        "a library's choice of pairs",
        script(first="each = miners.MultiSimilarityMiner()", result="each(x, y)"),
        "MultiSimilarityMiner compares",
    ),
]


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NOOP])
def test_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF318", text)] == []


@pytest.mark.parametrize(
    ("text", "because"), [pytest.param(text, because, id=name) for name, text, because in TOLD]
)
def test_found_and_only_told(text: str, because: str) -> None:
    (finding,) = found("DF318", text)
    assert finding.because.startswith(because)
    assert not finding.edits
