"""DF401 without a DataLoader: ranks take turns with the batches that a script makes itself."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from cases import changes, found, module, written
from ddpfix.patcher.analysis.batches.summed_losses import is_loss_sum
from ddpfix.patcher.engine.patch import patch
from forked import Forge

SCRIPT = """\
import json
import os
import random
import sys

import numpy as np
import torch
from torch import nn

size = 8 // int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(0)
x = torch.randn(32, 4)
y = x.sum(1, keepdim=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{before}


def batches(data, size):
    {draws}
    for start in range(0, len(data), size):
        yield data[start : start + size]


for epoch in range(3):
    total, hidden = 0, None
    {shuffle}
    for {target} in {source}:
        {batch}
        optimizer.zero_grad()
        loss = {loss}
        loss.backward()
        optimizer.step()
        total += loss.item()
        {last}
    {behind}
with open(f"{{sys.argv[1]}}.{{os.environ.get('RANK', 0)}}", "w") as file:
    json.dump([round(float(v), 6) for p in model.parameters() for v in p.flatten()] + seen, file)
"""
CUT = "part = order[i : i + size]; inputs, labels = x[part], y[part]"
PARTS = {
    "before": "seen = []",
    "draws": "pass",
    "shuffle": "order = torch.randperm(len(x))",
    "target": "i",
    "source": "range(0, len(x), size)",
    "batch": CUT,
    "loss": "nn.functional.mse_loss(model(inputs), labels)",
    "last": "pass",
    "behind": "seen.append(round(total * size / len(x), 5))",
}


def script(**parts: str) -> str:
    return SCRIPT.format(**{**PARTS, **parts})


def repaired(folder: Path, text: str) -> str:
    path = folder / "train.py"
    path.write_text(text)
    result = patch(path)
    assert result.refusal == ""
    return next((change.text for change in result.changes), text)


@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        ({}, "+    draw_alike()\n     order = torch.randperm(len(x))\n"
             "-    for i in range(0, len(x), size):\n"
             "+    for i in share_of_batches(range(0, len(x), size)):\n"),
        ({"target": "step, i", "source": "enumerate(range(0, len(x), size))",
          "last": "if step % 2 == 0: torch.save(model, 'm.pt')"},
         "+    for step, i in enumerate(share_of_batches(range(0, len(x), size))):\n"),
        ({"shuffle": "number = len(x) // size", "source": "range(number)",
          "batch": "low = i * size; high = min(low + size, len(x)); "
                   "inputs, labels = x[low:high], y[low:high]"},
         "+    for i in share_of_batches(range(number)):\n"),
        ({"shuffle": "pass", "source": "np.random.permutation(len(x))",
          "batch": "inputs, labels = x[i : i + 1], y[i : i + 1]"},
         "+    draw_alike()\n+    for i in share_of_batches(np.random.permutation(len(x))):\n"),
        ({"shuffle": "random.shuffle(rows)", "before": "seen = []; rows = list(zip(x, y))",
          "target": "rows_of_batch", "source": "batches(rows, size)",
          "batch": "inputs, labels = map(torch.stack, zip(*rows_of_batch))"},
         "+    draw_alike()\n     random.shuffle(rows)\n"
         "-    for rows_of_batch in batches(rows, size):\n"
         "+    for rows_of_batch in share_of_batches(batches(rows, size)):\n"),
        ({"shuffle": "pass", "draws": "data = data[torch.randperm(len(data))]",
          "target": "inputs", "source": "batches(x, size)",
          "batch": "labels = inputs.sum(1, keepdim=True)"},
         "+    draw_alike()\n+    for inputs in share_of_batches(batches(x, size)):\n"),
        ({"shuffle": "pass", "source": "batches(x, size)", "target": "inputs",
          "batch": "inputs = [row.float() for row in inputs]; inputs = torch.stack(inputs); "
                   "labels = inputs.sum(1, keepdim=True)"},
         "+    for inputs in share_of_batches(batches(x, size)):\n"),
        ({"shuffle": "order = range(32)", "source": "starts",
          "before": "seen = []; starts = range(0, 32, size)\n"
                    "optimizer = planned(optimizer, t_total=3 * len(starts))"},
         "+optimizer = planned(optimizer, t_total=3 * -(-len(starts) // (torch.distributed."
         "get_world_size() if torch.distributed.is_initialized() else 1)))\n"),
    ],
    ids=["slices", "enumerated", "numbers", "permutation", "shuffled list", "generator",
         "moved batch", "planned"],
)  # fmt: skip
def test_ranks_take_turns(tmp_path: Path, parts: dict[str, str], wanted: str) -> None:
    text = script(**parts)
    new = repaired(tmp_path, text)
    assert wanted in changes(text, new)
    assert found("DF401", new) == []
    assert "gathered(total)" in new


@pytest.mark.parametrize(
    "parts",
    [
        {"shuffle": "steps = 0", "last": "steps += 1", "target": "inputs",
         "source": "batches(x, size)", "behind": "seen.append(total / steps)"},
        {"target": "i, inputs", "source": "enumerate(batches(x, size))",
         "behind": "total /= i + 1; seen.append(total)"},
        {"target": "i, inputs", "source": "enumerate(batches(x, size), 1)",
         "behind": "count = i * size; seen.append(total / count)"},
    ],
    ids=["its steps", "the number of the last", "a product of it"],
)  # fmt: skip
def test_a_sum_that_a_rank_divides_by_its_own_steps_is_its_own(
    tmp_path: Path, parts: dict[str, str]
) -> None:
    new = repaired(tmp_path, script(batch="labels = inputs.sum(1, keepdim=True)", **parts))
    assert "share_of_batches(batches(x, size)" in new
    assert "gathered(" not in new


GROUP = "import torch.distributed\ntorch.distributed.init_process_group('gloo')\n"
REFUSED = {
    "whole data": ({"batch": "inputs, labels = x, y"}, "a step of line 28 trains on no part that"),
    "examples that each step draws": (
        {"batch": "part = torch.randint(32, (4,)); inputs, labels = x[part], y[part]"},
        "line 29 draws the batch of each step",
    ),
    "scales of all examples": (
        {"target": "scale", "source": "(0.5, 1, 2)", "batch": "inputs, labels = x * scale, y"},
        "line 28 goes over numbers that are written there",
    ),
    "steps are counted": (
        {"batch": "inputs, labels = x[order[:4]] * i, y[order[:4]]"},
        "line 28 counts steps",
    ),
    "what went before": (
        {"batch": f"{CUT}; inputs = inputs if hidden is None else inputs + hidden",
         "last": "hidden = inputs.detach()"},
        "line 29 goes on with the hidden of the batch before",
    ),
    "draws in a step": (
        {"batch": "part = torch.randint(32, (4,)); inputs, labels = x[part], y[i : i + 4]"},
        "line 29 draws the batch of each step, which ranks cannot share: line 29 picks by the",
    ),
    "a step that one rank skips": (
        {"batch": f"if i > 20: continue\n        {CUT}"},
        "would not all come to line 29, which hangs on the test in line 29",
    ),
    "an evaluation that hangs on the number": (
        {"last": "if i % 100 == 0: list(batches(x, 2))"},
        "would not all come to line 35, which hangs on the test in line 35",
    ),
    "a rate that hangs on the number": (
        {"last": "optimizer.param_groups[0]['lr'] = 0.1 / (1 + i)"},
        "in line 35 more than its batch hangs on i",
    ),
    "a schedule of all batches": (
        {"before": "seen = []; schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, "
                   "total_steps=3 * len(x) // size)"},
        "line 16 plans with the number of all of them",
    ),
    "an optimizer that schedules itself by all examples": (
        {"before": "seen = []; optimizer = BertAdam(optimizer, t_total=3 * len(x) // size)"},
        "line 16 plans with the number of all of them",
    ),
    "a schedule by the rank's own loss": (
        {"before": "seen = []; plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)",
         "behind": "plateau.step(loss)"},
        "line 36 steps a schedule by a rank's own loss",
    ),
    "a decision by the rank's own loss": (
        {"behind": "if loss < 1: break"}, "each rank would decide by its own in line 36"
    ),
    "models": (
        {"target": "net", "source": "[model, model]",
         "batch": "inputs, labels = x, y; loss = net(x).mean()",
         "loss": "loss + model(inputs).mean()"},
        "line 29 uses its net as a model",
    ),
    "seeds by the time": (
        {"before": "seen = []; import time; random.seed(int(time.time()))"},
        "line 16 may seed each rank by a value of its own",
    ),
    "draws for each batch": (
        {"target": "part", "source": "batches(x, size)", "draws": "for _ in data:"
         " yield data[torch.randperm(4)]", "batch": "inputs, labels = part, part.sum(1)"},
        "line 20 draws for each batch when it comes",
    ),
    "a mean by the number": (
        {"shuffle": "order = range(32)", "source": "range(8)",
         "batch": "inputs, labels = x[i * 4 : i * 4 + 4], y[i * 4 : i * 4 + 4]",
         "last": "print(total / (i + 1))"},
        "line 35 divides by the number of a batch",
    ),
    "a mean that the number tells": (
        {"last": "if i % 16 == 0: print(total / 4); total = 0"},
        "what line 35 does with total hangs on the number of a batch",
    ),
    "a mean by the last number": (
        {"behind": "print(total / (i + 1))"}, "line 36 divides by the number of a batch"
    ),
    "a sum that goes on": (
        {"target": "i", "before": "seen, grand = [], 0", "last": "grand += loss.item()",
         "behind": "print(grand / len(x))"},
        "the sum grand over them does not begin anew above line 28",
    ),
    "the order of a set": (
        {"before": "seen = []; words = {w: i for i, w in enumerate(set('abc'))}"},
        "goes through a set, in another order in each process: sort it first",
    ),
    "a generator of numbers of its own": (
        {"before": "seen = []; rng = np.random.default_rng()",
         "shuffle": "order = torch.as_tensor(rng.permutation(len(x)))"},
        "draws by a generator of its own, in rng.permutation()",
    ),
    "another library's": (
        {"before": "seen = []; import datasets; rows = datasets.load('x')", "target": "inputs",
         "source": "rows", "batch": "labels = inputs.sum(1)"},
        "whether all ranks get the same ones of `datasets.load('x')` in line 16",
    ),
    "a sum in a function": (
        {"before": "seen = []\n\ndef sum_loss(a, b): return {0: ((a - b) ** 2).sum()}",
         "loss": "sum_loss(model(inputs), labels)[0]"},
        "its loss may be a sum over a batch: line 18",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("parts", "because"), REFUSED.values(), ids=REFUSED)
def test_where_it_is_not_proven_ranks_do_not_share(parts: dict[str, str], because: str) -> None:
    text = script(**parts)
    (finding,) = found("DF204", text)
    assert because in finding.because
    assert finding.edits == ()
    (finding,) = found("DF401", text.replace("size = 8", f"{GROUP}size = 8"))
    assert finding.edits == ()


@pytest.mark.parametrize("seed", ["torch.manual_seed(0)\n", ""])
def test_draws_before_the_group_need_a_seed(seed: str) -> None:
    text = script().replace("torch.manual_seed(0)\n", seed)
    (finding,) = found("DF401", text.replace("\n\n\ndef", f"\n{GROUP}\n\ndef", 1))
    assert bool(finding.edits) is bool(seed)
    assert seed or "each rank draws for itself in line 11, before there is" in finding.because


def test_two_ranks_train_as_one_process_does(forge: Forge, tmp_path: Path) -> None:
    text = script()
    new = repaired(tmp_path, text)
    (one,) = written(forge, tmp_path, "one", text, None)
    (same,) = written(forge, tmp_path, "same", new, None)
    two = written(forge, tmp_path, "two", new, 2)
    assert one == same
    assert two[0] == two[1]
    assert two[0] == pytest.approx(one)


def test_ranks_go_over_all_examples_also_where_they_have_drawn_apart(
    forge: Forge, tmp_path: Path
) -> None:
    new = repaired(tmp_path, script(last="seen += part.tolist()", behind="pass"))
    apart = new.replace("    total, hidden", "    torch.seed()\n    total, hidden")
    first, second = written(forge, tmp_path, "apart", apart, 2)
    weights = 5
    assert sorted(first[weights:] + second[weights:]) == sorted([*range(32)] * 3)


EITHER = """\
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
def run(model, x, optimizer=None, train=False):
    {mode}
    seen = []
    for i in range(0, len(x), 4):
        loss = model(x[i : i + 4]).mean()
        seen.append(loss.item())
        {go}
    return sum(seen) / len(seen)
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    run(model, torch.randn(8, 4), optimizer, True)
    print(run(model, torch.randn(8, 4)))
"""
STEP = "loss.backward()\n        optimizer.step()"
MAY_STEP = "if {test}:\n            loss.backward()\n            optimizer.step()"
MODES = "if train:\n        model.train()\n    else:\n        model.eval()"


@pytest.mark.parametrize(
    ("mode", "go", "line"),
    [
        ("pass", MAY_STEP.format(test="train"), 10),
        ("pass", MAY_STEP.format(test="optimizer is not None"), 10),
        (MODES, STEP, 6),
    ],
)
def test_a_loop_that_evaluates_as_well_is_not_shared(mode: str, go: str, line: int) -> None:
    (finding,) = found("DF401", EITHER.format(mode=mode, go=go))
    assert f"as line {line} says, the same loop evaluates on all" in finding.because
    assert not finding.edits


def test_a_teacher_in_eval_mode_is_no_evaluation() -> None:
    (finding,) = found("DF401", EITHER.format(mode="model.train(); teacher.eval()", go=STEP))
    assert finding.edits


@pytest.mark.parametrize(
    ("value", "is_sum"),
    [
        ("losses.sum()", True),
        ("torch.sum(losses)", True),
        ("weigh(loss, y.ne(-100).sum())", False),
        ("loss * (y > 0).sum()", False),
        ("loss * torch.sum(y == 1)", False),
    ],
)
def test_a_number_of_tokens_is_no_sum_of_losses(value: str, is_sum: bool) -> None:
    read = module(f"import torch\nloss = {value}\n")
    assert any(is_loss_sum(read, call) for call in read.nodes(ast.Call)) is is_sum
