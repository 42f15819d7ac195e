"""DF305: an object made of a model above its wrapper, that goes back through it past that."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import fixed, found, module, written
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.audit import audit
from forked import Forge

SCRIPT = """\
import json
import os
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader


class Attack:
    def __init__(self, model, size=0.5):
        self.model = model
        self.size = size

    def move(self, sign):
        for name, each in self.model.named_parameters():
            if {asked}:
                each.data.add_(sign * self.size * each.grad)

    def report(self):
        return len([*self.model.parameters()])

    def loss(self, x, y):
        return nn.functional.mse_loss(self.model(x), y)

    def train(self, x, y):
        before = {{n: p.data.clone() for n, p in self.model.named_parameters()}}
        self.move(1)
        {passes}
        for name, each in self.model.named_parameters():
            each.data = before[name]


def train(args, model, data):
    {above}
    if args.ranks:
        {wrap}
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    {below}
    for x, y in DataLoader(data, batch_size=args.size, sampler=args.sampler(data)):
        nn.functional.mse_loss(model(x), y).backward()
        {use}
        optimizer.step()
        optimizer.zero_grad()
"""
PARTS = {
    "asked": '"weight" in name',
    "passes": "self.loss(x, y).backward()",
    "above": "attack = Attack(model)",
    "wrap": "model = nn.parallel.DistributedDataParallel(model)",
    "below": "pass",
    "use": "attack.train(x, y)",
}
MAIN = """

class Args:
    ranks = "RANK" in os.environ
    size = 2 if ranks else 4
    attack = "strong"

    def sampler(self, data):
        if not self.ranks:
            return None
        return torch.utils.data.distributed.DistributedSampler(data, shuffle=False)


if Args.ranks:
    torch.distributed.init_process_group("gloo")
torch.manual_seed(0)
x = torch.randn(8, 3)
model = nn.Linear(3, 1)
train(Args(), model, torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)))
with open(f"{sys.argv[1]}.{os.environ.get('RANK', 0)}", "w") as file:
    json.dump([p.tolist() for p in model.parameters()], file)
"""


def script(**parts: str) -> str:
    return SCRIPT.format(**{**PARTS, **parts})


NOOP = [
    ("made below the wrapper", script(above="pass", below="attack = Attack(model)")),
    ("given the wrapper by hand", script(below="attack.model = model")),
    ("of another model", script(above="attack = Attack(teacher)")),
    ("of a model whose name another one gets", script(
        above="attack = Attack(model)\n    model = nn.Linear(3, 1)")),
    ("that goes back in nothing that is used", script(use="attack.report()")),
    ("that computes a loss, and the step goes back", script(passes="self.loss(x, y)")),
    ("that goes back through something else", script(passes="x.square().mean().backward()")),
    ("of another class", script(above="attack = Other(model)")),
    ("in another branch", script(above="pass").replace("    if args.ranks:", """\
    if args.alone:
        attack = Attack(model)
    else:""")),
    ("gradients that are averaged by hand", script(use="attack.train(x, y)\n        for p in"
        " model.parameters():\n            torch.distributed.all_reduce(p.grad)")),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NOOP])
def test_what_does_not_go_past_the_wrapper_is_left_alone(text: str) -> None:
    assert found("DF305", text) == []


WRAP = "        model = nn.parallel.DistributedDataParallel(model)\n"
TWO = """\
if args.attack == "weak":
        attack = Attack(model, 0.1)
    elif args.attack == "strong":
        attack = Attack(model)"""
FIX = [
    ("always", {}, "        attack.model = model\n"),
    ("under an option", {"above": "if args.attack:\n        attack = Attack(model)"},
        "        if args.attack:\n            attack.model = model\n"),
    ("in an expression", {"above": "attack = Attack(model) if args.attack else None"},
        "        if args.attack:\n            attack.model = model\n"),
    ("of two kinds", {"above": TWO},
        '        if args.attack == "strong":\n            attack.model = model\n'
        '        if args.attack == "weak":\n            attack.model = model\n'),
    ("before a cast", {"above": "attack = Attack(model)\n    model = model.float()"},
        "        attack.model = model\n"),
    ("that is called", {"use": "attack(x, y)"}, "        attack.model = model\n"),
]  # fmt: skip


def said_of_gradients(text: str) -> str:
    """What the audit says of gradients that are not averaged."""
    verdicts = audit(Program(module(text + MAIN)))
    return " ".join(each.because for each in verdicts if each.code == "O2" and each.is_violated)


@pytest.mark.parametrize(
    ("parts", "code"), [pytest.param(parts, code, id=name) for name, parts, code in FIX]
)
def test_the_object_gets_the_wrapper(parts: dict[str, str], code: str) -> None:
    text = script(**parts)
    if parts.get("use") == "attack(x, y)":
        text = text.replace("def train(self, x, y)", "def __call__(self, x, y)")
    assert "goes back past the wrapper" in said_of_gradients(text)
    once = fixed("DF305", text)
    assert sorted(once.splitlines()) == sorted(text.splitlines() + code.splitlines())
    assert WRAP in once
    assert found("DF305", once) == []
    assert said_of_gradients(once) == ""


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({"asked": 'name.startswith("weight")'}, id="the whole of a name"),
        pytest.param({"asked": 'name == "weight"'}, id="a whole name"),
        pytest.param({"asked": "self.model.head.bias"}, id="a part of the model"),
        pytest.param(
            {"above": "if wanted(args):\n        attack = Attack(model)"},
            id="a test that may change",
        ),
    ],
)
def test_it_is_told_where_the_wrapper_cannot_take_its_place(parts: dict[str, str]) -> None:
    (finding,) = found("DF305", script(**parts))
    assert finding.edits == ()
    assert "make attack below, of model" in finding.because


PASSED = """
def main(args, data):
    net = nn.Linear(3, 1)
    {made}
    train(args, net, data, {passed})
"""


@pytest.mark.parametrize(
    ("made", "passed", "is_sure"),
    [
        ("pass", "Attack(net)", True),
        ("held = Attack(net)", "held", True),
        ("held = Attack(net) if args.attack else None", "held", False),
    ],
)
def test_one_that_a_caller_passes_along_gets_it_too(made: str, passed: str, is_sure: bool) -> None:
    text = script(above="pass").replace("model, data):", "model, data, attack):")
    text += PASSED.format(made=made, passed=passed)
    (finding,) = found("DF305", text)
    assert bool(finding.edits) is is_sure
    if is_sure:
        assert f"{WRAP}        attack.model = model\n" in fixed("DF305", text)
        assert found("DF305", fixed("DF305", text)) == []
    assert found("DF305", text.replace("Attack(net)", "Attack(other)")) == []


def test_ranks_step_as_one_process_does(forge: Forge, tmp_path: Path) -> None:
    text = script() + MAIN
    (alone,) = written(forge, tmp_path, "alone", text, None)
    ranks = written(forge, tmp_path, "ranks", fixed("DF305", text), 2)
    assert ranks[0] == ranks[1]
    for one, two in zip(sum(alone[0], alone[1]), sum(ranks[0][0], ranks[0][1]), strict=True):
        assert one == pytest.approx(two, rel=1e-5)
    apart = written(forge, tmp_path, "apart", text, 2)
    assert apart[0] != apart[1]
