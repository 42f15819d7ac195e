"""DF320: Ranks change their gradients each in its own way."""

from __future__ import annotations

import pytest
from audited import audited
from cases import found

SCRIPT = """
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler
torch.distributed.init_process_group("gloo")
def scale(model, number):
    for p in model.parameters():
        p.grad.data.mul_(number)
def clip(grad):
    return torch.clamp(grad, -1, 1)
def half(grad):
    return grad * 0.5
model = torch.nn.parallel.DistributedDataParallel(Net())
loader = DataLoader(data, sampler=DistributedSampler(data))
{before}
for epoch in range(9):
    for step, (x, y, lengths) in enumerate(loader):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        {after}
        optimizer.step()
"""


def script(before: str = "pass", after: str = "pass") -> str:
    return SCRIPT.format(before=before, after=after)


def each(change: str, first: str = "pass") -> str:
    """A step that changes the gradient of each weight."""
    return f"{first}\n        for p in model.parameters():\n            {change}"


ATTACK = """{}
        F.cross_entropy(model(x + d), y).backward()
        d.grad.div_(d.grad.view(len(x), -1).norm(dim=1))"""
HOOKS = "for p in model.parameters():\n    p.register_hook({})"

HALVED = """if step % 4 == 3:
            for p in model.parameters():
                p.grad.data = p.grad.data / args.scale
            if has_nan(model):
                args.scale = args.scale / 2
                continue"""

# A sentence, and a script that comes close and is right.
NOOP: list[tuple[str, str]] = [
    ("a constant", script(after=each("p.grad /= 2"))),
    ("a number of the settings", script(after=each("p.grad.data.div_(args.scale)"))),
    ("a scale that a NaN of all ranks halves, with batches of a loader that is not known",
        script(after=HALVED).replace("DataLoader(data, sampler=DistributedSampler(data))", "o()")),
    ("a norm of gradients that all ranks have", script(after=each(
        "p.grad.mul_(0.5 / total)", "total = sum(p.grad.norm() for p in model.parameters())"))),
    ("a mask of weights", script("mask = torch.ones(3)", each("p.grad.mul_(mask)"))),
    ("a number of all ranks", script(after=each(
        "p.grad /= n", "n = lengths.sum(); torch.distributed.all_reduce(n)"))),
    ("the gradient of an input", script(after="x = x + x.grad / len(x)")),
    ("that of the noise of an attack", script(after=ATTACK.format(
        "d = 0.1 * torch.randn(x.shape)\n        d = Variable(d.data, requires_grad=True)"))),
    ("of a tensor that asks for gradients", script(after=ATTACK.format(
        "d = torch.zeros(3)\n        d.requires_grad_()"))),
    ("of what is made of the batch", script(after=ATTACK.format("d = torch.randn_like(x)"))),
    ("a hook that scales", script(HOOKS.format("lambda g: g * 0.1"))),
    ("a function that does", script(HOOKS.format("half"))),
    ("a hook on what a layer gives", script("out.register_hook(lambda g: g.clamp(-1, 1))")),
]  # fmt: skip

WRONG: list[tuple[str, str]] = [
    ("a number of examples", script(after=each("p.grad /= len(x)"))),
    ("a number of tokens", script(after=each("p.grad.data.div_(n)", "n = lengths.sum()"))),
    ("a loss", script(after=each("p.grad = p.grad * loss.item()"))),
    ("in a function", script(after="scale(model, 1 / lengths.sum())")),
]
NOTED: list[tuple[str, str]] = [
    ("a hook that clips", script(HOOKS.format("lambda g: g.clamp(-1, 1)"))),
    ("a function that does", script(HOOKS.format("clip"))),
    ("a weight by its name", script("model.head.weight.register_hook(lambda g: g / g.norm())")),
]


@pytest.mark.parametrize(("name", "text"), NOOP)
def test_it_is_left_alone(name: str, text: str) -> None:
    assert found("DF320", text) == [], name


@pytest.mark.parametrize(("name", "text"), WRONG)
def test_ranks_that_part_are_an_error(name: str, text: str) -> None:
    (finding,) = found("DF320", text)
    assert finding.severity.value == "E", name


@pytest.mark.parametrize(("name", "text"), NOTED)
def test_hooks_are_noted(name: str, text: str) -> None:
    (finding,) = found("DF320", text)
    assert "before the average" in finding.because, name


AVERAGING = """
def average_gradients(model):
    for p in model.parameters():
        torch.distributed.all_reduce(p.grad)
        p.grad /= torch.distributed.get_world_size()
"""
CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1)"


@pytest.mark.parametrize(
    ("steps", "is_told"),
    [
        (f"{CLIP}\n        average_gradients(model)", True),
        (f"if args.clip: {CLIP}\n        average_gradients(model)", True),
        (f"if args.clip: {CLIP}\n        else: average_gradients(model)", False),
        (f"average_gradients(model)\n        {CLIP}", False),
        (f"{CLIP}\n        more(x).backward()\n        average_gradients(model)", False),
    ],
)
def test_gradients_are_clipped_behind_the_average(steps: str, is_told: bool) -> None:
    text = AVERAGING + script(after=steps).replace(
        "model = torch.nn.parallel.DistributedDataParallel(Net())", "model = Net()"
    )
    told = [each for each in found("DF320", text) if "before line" in each.because]
    assert len(told) == is_told
    lines = [line for code, answer, line in audited(text) if (code, answer) == ("O2", "violated")]
    assert bool(lines) is is_told
