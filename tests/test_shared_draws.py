"""Steps that draw the examples of their batch: each rank takes its share of what all draw."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import found, written
from ddpfix.patcher.engine.patch import patch
from forked import Forge

HEAD = """\
import json
import math
import os
import random
import sys
import numpy as np
import torch
from torch.nn.functional import mse_loss

size = 8 // int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(0)
np.random.seed(0)
x, y = torch.randn(32, 4), torch.randn(32, 1)
rng = np.random.default_rng(0)
"""
DRAW = """
def take(number):
    part = {draw}
    return x[part], y[part]

@torch.no_grad()
def score():
    inputs, labels = take(size)
    return mse_loss(net(inputs), labels).item()

"""
LOOP = """
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
best = 9
{before}
for epoch in {epochs}:
    for step in {steps}:
        inputs, labels = {batch}
        optimizer.zero_grad()
        loss = mse_loss(net(inputs), labels)
        loss.backward()
        optimizer.step()
        {last}
    {end}
"""
PARTS = {
    "draw": "torch.randint(0, len(x), (number,))",
    "before": "pass",
    "epochs": "range(2)",
    "steps": "range(5)",
    "batch": "take(size)",
    "last": "pass",
    "end": "pass",
}
TAIL = """
with open(f"{sys.argv[1]}.{os.environ.get('RANK', 0)}", "w") as file:
    json.dump([float(v) for p in net.parameters() for v in p.flatten()], file)
"""
RANKS = "(torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1)"


def script(**parts: str) -> str:
    every = {**PARTS, **parts}
    return HEAD + DRAW.format(**every) + LOOP.format(**every) + TAIL


def repaired(folder: Path, text: str) -> str:
    path = folder / "train.py"
    path.write_text(text)
    result = patch(path)
    assert result.refusal == ""
    return next((change.text for change in result.changes), text)


@pytest.mark.parametrize(
    ("draw", "after"),
    [
        (PARTS["draw"], "torch.randint(0, len(x), (number * RANKS,))"),
        ("torch.randint(32, size=[number])", "torch.randint(32, size=[number * RANKS])"),
        ("np.random.randint(0, 32, number)", "np.random.randint(0, 32, number * RANKS)"),
        ("np.random.choice(32, (number,))", "np.random.choice(32, (number * RANKS,))"),
        ("random.sample(range(32), number)", "random.sample(range(32), number * RANKS)"),
        ("random.choices(range(32), k=number)", "random.choices(range(32), k=number * RANKS)"),
        ("torch.randperm(32)[:number]", "torch.randperm(32)[:number * RANKS]"),
        ("rng.integers(0, 32, number)", "rng.integers(0, 32, number * RANKS)"),
        ("np.random.permutation(32)[: number // 2 * 2]",
            "np.random.permutation(32)[: (number // 2 * 2) * RANKS]"),
    ],
)  # fmt: skip
def test_ranks_draw_for_all_of_them(tmp_path: Path, draw: str, after: str) -> None:
    new = repaired(tmp_path, script(draw=draw))
    assert f"share_of_drawn({after.replace('RANKS', RANKS)})" in new
    assert "\ndraw_alike()\nfor epoch in range(2):" in new
    assert [code for code in ("DF204", "DF401", "DF404", "DF410") if found(code, new)] == []


@pytest.mark.parametrize(
    ("parts", "after"),
    [
        ({"steps": "range(len(x) // size)"}, "range((len(x) // size // (RANKS)))"),
        ({"before": "many = math.ceil(len(x) / size)", "steps": "range(many)"},
            "many = -(-math.ceil(len(x) / size) // (RANKS))"),
        ({"before": "inputs, labels = take(size)", "batch": "inputs, labels", "last":
            "inputs, labels = take(size)"}, "draw_alike()\ninputs, labels = take(size)\nfor"),
    ],
    ids=["as many as there are batches", "that many, by a name", "the first ahead of the loop"],
)  # fmt: skip
def test_what_goes_with_it(tmp_path: Path, parts: dict[str, str], after: str) -> None:
    assert after.replace("RANKS", RANKS[1:-1]) in repaired(tmp_path, script(**parts))


LENGTH = "counts steps by the length of its data"
REFUSED = {
    "noise like the batch": (
        {"batch": "take(size)\n        inputs = inputs + torch.randn_like(inputs)"},
        "by torch.randn_like() in line 33 of script.py, not as many as there are examples",
    ),
    "as many steps as examples": ({"steps": "range(len(x))"}, LENGTH),
    "one more than that": ({"steps": "range(round(len(x) / size))"}, LENGTH),
    "a mean over as many batches": (
        {"end": "print(best / (len(x) // size))"}, "line 38 of script.py counts batches as well"
    ),
    "an evaluation with gradients": (
        {"last": "print(net(take(size)[0]))"}, "line 37 draws examples that it does not train on"
    ),
    "an evaluation elsewhere": (
        {"before": "print(net(take(size)[0]))"}, "line 29 of script.py draws by take() as well"
    ),
    "examples that steps collect": (
        {"draw": "random.sample(pool, number)", "before": "pool = [0]",
         "last": "pool.append(step)"},
        "draws from pool, which the steps change",
    ),
    "a step that one rank leaves out": (
        {"batch": "take(size)\n        if labels.sum() > 3: continue"},
        "hangs on the test in line 33",
    ),
    "a rank's own loss that decides": (
        {"end": "if loss < best: break"}, "each rank would decide by its own in line 38"
    ),
    "a number of the step that picks": (
        {"last": "print(x[step])"}, "line 37 picks by the number of the step as well"
    ),
    "draws without gradients": (
        {"batch": "take(size)\n        with torch.no_grad():\n            part = "
                  "torch.randint(0, 32, (size,))\n        inputs = inputs + x[part]"},
        "line 34 draws its batch without gradients",
    ),
    "ids by the order of a set": (
        {"before": "names = list(set('abc'))"}, "goes through a set, in another order in each"
    ),
    "an environment": ({"before": "import gym"}, "its examples come from an environment"),
}  # fmt: skip


@pytest.mark.parametrize(("parts", "because"), REFUSED.values(), ids=REFUSED)
def test_what_ranks_cannot_share(parts: dict[str, str], because: str) -> None:
    (finding,) = found("DF204", script(**parts))
    assert because in finding.because
    assert finding.edits == ()
    assert "`ddpfix explain DF401`" in finding.because


@pytest.mark.parametrize("steps", ["range(len(x) // size)", "range(5)"])
def test_ranks_train_as_one_process_does(steps: str, forge: Forge, tmp_path: Path) -> None:
    scored = {"last": "best = min(best, score())", "end": "print(best)"}
    text = script(draw="torch.randperm(32)[:number]", steps=steps, **scored)
    new = repaired(tmp_path, text)
    (alone,) = written(forge, tmp_path, "original", text, None)
    assert written(forge, tmp_path, "patched", new, None) == [alone]
    for ours in written(forge, tmp_path, "ranks", new, 2):
        assert ours == pytest.approx(alone, rel=1e-4, abs=2e-6)


RANKED = """\
import torch
torch.distributed.init_process_group("gloo")
x = torch.randn(32, 4)
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(9):
    part = x[torch.randint(0, len(x), (8,))]
    optimizer.zero_grad()
    net(part).mean().backward()
    optimizer.step()
"""


def test_ranks_that_a_script_had_before_draw_each_for_itself(tmp_path: Path) -> None:
    """Without a seed each of them has other examples, as it should."""
    assert "share_of_drawn" not in repaired(tmp_path, RANKED)
    assert [finding.edits for finding in found("DF401", RANKED)] == [()]
