"""Optimizers whose class is chosen first, by an option or a test."""

from __future__ import annotations

import pytest
from cases import module
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.analysis.training.train_loops import OPTIMIZERS

HEAD = "import functools\nimport torch\nfrom torch import optim\n"
CHOSEN = [
    ("by getattr", "getattr(optim, name)(net.parameters(), lr=0.1)"),
    ("by getattr, of a name", "Kind = getattr(torch.optim, name)\nKind(net.parameters())"),
    ("from a dictionary", "{'sgd': optim.SGD, 'adam': optim.Adam}[name](net.parameters())"),
    ("from a table", "KINDS = {'a': optim.SGD}\ndef make():\n    return KINDS[name](weights)"),
    ("by get()", "KINDS = {'a': optim.SGD}\nKINDS.get(name, optim.Adam)(weights)"),
    ("by a test", "Kind = optim.SGD if name else optim.Adam\nKind(net.parameters())"),
    ("by an if", "if name:\n    Kind = optim.SGD\nelse:\n    Kind = optim.Adam\nKind(weights)"),
    ("with options", "make = functools.partial(optim.SGD, lr=0.1)\nmake(net.parameters())"),
    ("by a caller", "def make(Kind):\n    return Kind(weights)\nmake(optim.SGD)"),
]
USED = "optimizer.zero_grad()\nloss.backward()\noptimizer.step()\n"
OWN = "class Muon(optim.Optimizer):\n    def step(self):\n        pass\n"
SCALED = USED.replace("optimizer.step()", "scaler.step(optimizer)")
CHOSEN += [
    ("from settings", f"optimizer = CONFIG['kind']['type'](net.parameters(), lr=0.1)\n{USED}"),
    ("of another library", f"from muon import Muon\noptimizer = Muon(net.parameters())\n{USED}"),
    ("of the script's own", f"{OWN}optimizer = Muon(params=list(net.parameters()))\n{USED}"),
    ("stepped by a scaler", f"optimizer = Muon([*net.parameters()], 0.1)\n{SCALED}"),
    ("that torch has since", f"optimizer = optim.Muon(net.parameters())\n{USED}"),
]
OTHERS = [
    ("weights that are averaged", "ema = Average(net.parameters(), 0.99)\nema.step()"),
    (
        "what the script has a class for",
        (
            "class Steps:\n    def step(self):\n        pass\n"
            f"optimizer = Steps(net.parameters())\n{USED}"
        ),
    ),
    ("what gets no parameters", f"optimizer = Muon(net)\n{USED}"),
    ("what is given another thing", "optimizer = Muon(net.parameters())\noptimizer.step()"),
    ("a schedule", "getattr(optim.lr_scheduler, name)(optimizer)"),
    ("a table of other things too", "{'a': optim.SGD, 'b': Model}[name](weights)"),
    ("what a caller may pass", "def make(Kind):\n    return Kind(weights)\nmake(Model)"),
    ("another package", "getattr(models, name)(weights)"),
]


def made(text: str) -> int:
    """How many calls of a program make an optimizer."""
    return len(Program(module(HEAD + text)).calls_to(*OPTIMIZERS))


@pytest.mark.parametrize("text", [row[1] for row in CHOSEN], ids=[row[0] for row in CHOSEN])
def test_a_class_that_is_chosen_makes_an_optimizer(text: str) -> None:
    assert made(text) == 1


@pytest.mark.parametrize("text", [row[1] for row in OTHERS], ids=[row[0] for row in OTHERS])
def test_what_may_be_no_optimizer_is_none(text: str) -> None:
    assert made(text) == 0
