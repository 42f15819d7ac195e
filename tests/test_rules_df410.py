"""DF410: All ranks draw the same noise in their steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import found, written
from ddpfix.patcher.api import patch
from ddpfix.patcher.findings import Severity
from forked import Forge

SCRIPT = """\
import json
import os
import sys

import torch
from torch.utils.data import DataLoader, random_split


class Noisy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, x):
        noise = {draw}
        drawn.append(float(noise.sum()))
        return (self.layer(x + noise) - noise).pow(2).mean()


{seed}
drawn = []
data = torch.arange(40.0).reshape(20, 2)
model = torch.nn.DataParallel(Noisy())
optimizer = torch.optim.SGD(model.parameters(), 0.001)
loader = DataLoader(data, batch_size=2, shuffle=True)
{before}for epoch in range(2):
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
{end}with open(f"{{sys.argv[1]}}.{{os.environ.get('RANK', 0)}}", "w") as file:
    json.dump(drawn, file)
"""
PARTS = {"draw": "torch.randn_like(x)", "seed": "torch.manual_seed(1)", "before": "", "end": ""}
PICK = "for i in range(2):\n    train, rest = random_split(data, [10, 10])\n"


def script(**parts: str) -> str:
    return SCRIPT.format(**{**PARTS, **parts})


# A sentence, and a script that comes close and is right.
NOOP: list[tuple[str, str]] = [
    ("no seed", script(seed="")),
    ("a seed of another library", script(seed="random.seed(1)")),
    ("a seed of each rank", script(seed="torch.manual_seed(1 + rank)")),
    ("a seed of each rank by another name", script(seed="""\
rank = torch.distributed.get_rank()
seed = 8 * torch.distributed.get_world_size() + rank
torch.manual_seed(seed)""")),
    ("a seed of each rank that a function gets", script(seed="""\
def start(number):
    torch.manual_seed(number)


start(1 + torch.distributed.get_rank())""")),
    ("no draw", script(draw="x * 0")),
    ("a generator", script(draw="torch.randn(x.shape, generator=g)")),
    ("one process", script().replace("torch.nn.DataParallel(Noisy())", "Noisy()")),
    ("ahead of the steps", script(draw="x * 0", before="start = torch.randn(len(data))\n")),
    ("behind a step, for a picture", script(draw="x * 0", end="torch.randn(len(data), 2)\n")),
    ("without gradients", script(draw="x * 0", end="").replace("        optimizer.zero_grad()\n",
        "        with torch.no_grad():\n            show(torch.randn(len(data), 2))\n"
        "        optimizer.zero_grad()\n")),
    ("for the weights", script(draw="torch.randn(self.layer.weight.shape)[0]")),
    ("for weights of a model that a step makes",
        script(draw="Variable(torch.randn(len(x), 2), requires_grad=True) * 0")),
    ("for the gradients alone", script(draw="x * 0").replace("        optimizer.step()\n",
        "        for p in model.parameters():\n            p.grad += torch.randn_like(p)\n"
        "        optimizer.step()\n")),
    ("they draw apart already", script(before="draw_apart()\n")),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NOOP])
def test_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF410", text)] == []


@pytest.mark.parametrize(
    "draw",
    [
        "torch.randn(x.shape)",
        "torch.rand(len(x), 2)",
        "x.new_empty(x.shape).normal_()",
        "torch.randint(0, 9, (len(x), 1))",
        "torch.randn(size=(len(x), 2))",
    ],
)
def test_ranks_draw_apart_from_their_first_epoch_on(draw: str, tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(script(draw=draw))
    (change,) = patch(path).changes
    assert "\ndraw_apart()\nfor epoch in range(2):\n" in change.text
    assert found("DF410", change.text) == []


TRAINER = """\
import torch
from torch.utils.data import DataLoader

class Diffusion(torch.nn.Module):
    def sample(self, size):
        return torch.randn(size=(size, 2))
    def loss(self, x):
        return (self(x) - self.sample(len(x))).pow(2).mean()

class Trainer:
    def epoch(self, model, optimizer):
        for x in loader:
            model.loss(x).backward()
            optimizer.step()
    def train(self, model, optimizer):
        {compiled}
        for epoch in range(2):
            self.epoch(model=model, optimizer=optimizer)

torch.manual_seed(1)
torch.distributed.init_process_group("gloo")
loader = DataLoader(data, batch_size=2, shuffle=True)
model = Diffusion()
Trainer().train(model, torch.optim.SGD(model.parameters(), 0.1))
"""


@pytest.mark.parametrize("compiled", ["pass", "model = torch.compile(model)"])
def test_a_method_of_the_model_draws_also_where_a_trainer_gets_it(compiled: str) -> None:
    (finding,) = found("DF410", TRAINER.format(compiled=compiled))
    assert "torch.randn() draws by a seed" in finding.because


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("a number that decides", {"draw": "x if torch.rand(1) < 0.5 else torch.randn_like(x)"}),
        ("an order that comes with each epoch", {"end": PICK}),
        ("ranks of the script's own", {"seed": "torch.manual_seed(1)"}),
    ],
)
def test_only_told_of(name: str, parts: dict[str, str]) -> None:
    text = script(**parts)
    if name.startswith("ranks"):
        text = text.replace("import torch\n", "import torch\ninit_process_group('gloo')\n", 1)
    (finding,) = found("DF410", text)
    assert (finding.edits, finding.severity) == ((), Severity.NOTE)


@pytest.mark.parametrize(
    "change",
    [
        "for p in model.parameters():\n            p.data.add_(torch.randn(p.shape), alpha=0.1)",
        "scale = model.module.layer.weight\n        scale.grad.add_(torch.randn_like(scale))",
    ],
)
def test_ranks_that_change_weights_by_noise_go_on_drawing_alike(change: str) -> None:
    text = script().replace(
        "        optimizer.step()\n", f"        {change}\n        optimizer.step()\n"
    )
    (finding,) = found("DF410", text)
    assert finding.edits == ()


def test_rank_0_draws_on_and_the_other_draws_apart(forge: Forge, tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(script())
    (change,) = patch(path).changes
    apart = written(forge, tmp_path, "apart", change.text, 2)
    alike = written(
        forge, tmp_path, "alike", change.text.replace("\ndraw_apart()\nfor", "\nfor"), 2
    )
    assert alike[0] == alike[1] == apart[0] != apart[1]
    assert not set(apart[0]) & set(apart[1])
    assert written(forge, tmp_path, "alone", change.text, None) == written(
        forge, tmp_path, "before", script(), None
    )


DATA_SET = """
import numpy as np

class Set(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows
        {made}

    def __getitem__(self, index):
        x = self.rows[index]
        {drawn}
        return x

torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), 0.001)
data = Set(rows)
sampler = torch.utils.data.distributed.DistributedSampler(data)
loader = DataLoader(data, batch_size=2, sampler=sampler)
{ahead}
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x in loader:
        {step}
        model(x).mean().backward()
        optimizer.step()
"""
ADDED = "x = x + self.rng.normal(0, 1, 2)"


def drawing(made: str = "pass", drawn: str = "pass", ahead: str = "", step: str = "pass") -> str:
    return (
        "import random\nimport torch\nfrom torch.utils.data import DataLoader\n"
        + DATA_SET.format(made=made, drawn=drawn, ahead=ahead, step=step)
    )


@pytest.mark.parametrize(
    "text",
    [
        drawing("self.rng = np.random.RandomState(0)", ADDED),
        drawing("self.rng = np.random.default_rng(args.seed)", ADDED),
        drawing("self.rng = random.Random(3)", "x = x if self.rng.random() < 0.5 else -x"),
        drawing("self.rng = torch.Generator()", "x = x + torch.randn(2, generator=self.rng)"),
        drawing(
            ahead="rng = np.random.default_rng(1)",
            step="x = x + torch.from_numpy(rng.normal(0, 1, x.shape))",
        ),
        drawing(ahead="np.random.seed(1)", step="x = x + torch.tensor(np.random.randn(len(x), 2))"),
        drawing(
            ahead="g = torch.Generator().manual_seed(2)",
            step="x = x + torch.randn(x.shape, generator=g)",
        ),
    ],
)
def test_noise_of_numpy_and_of_generators_is_noted(text: str) -> None:
    (finding,) = found("DF410", text)
    assert not finding.edits
    assert finding.because.endswith("() draws by a seed that all ranks have")


@pytest.mark.parametrize(
    "text",
    [
        drawing("self.rng = np.random.default_rng()", ADDED),
        drawing("self.rng = np.random.RandomState(args.seed + rank)", ADDED),
        drawing("self.rng = np.random.RandomState(0); self.rng.shuffle(rows)"),
        drawing(drawn="rng = np.random.RandomState(index); x = x + rng.normal(0, 1, 2)"),
        drawing("self.rng = torch.Generator(); self.rng.seed()", ADDED.replace("normal", "rand")),
        drawing(ahead="rng = random.Random(1)", step="if rng.random() < 0.5: x = -x"),
        drawing(ahead="np.random.seed(1)", step="share = np.random.beta(1, 1)"),
        drawing(ahead="rows = np.random.RandomState(0).normal(0, 1, data.shape)"),
        drawing(step="x = x + torch.tensor(np.random.randn(len(x), 2))"),
    ],
)
def test_what_ranks_draw_apart_or_have_to_draw_alike_is_left_alone(text: str) -> None:
    assert [each.because for each in found("DF410", text)] == []
