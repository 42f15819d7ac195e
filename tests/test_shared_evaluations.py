"""DF505: what an evaluation accumulates, and what of it the ranks can put together."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from cases import fixed, written
from forked import Forge

SCRIPT = """\
import json
import os
import sys

import numpy as np
import torch
from torch.utils.data import DataLoader

{functions}

class AverageMeter:
    def __init__(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


class MovingAverage:
    def __init__(self):
        self.sum = self.avg = 0

    def update(self, val):
        self.sum += val
        self.avg = 0.9 * self.avg + 0.1 * val


def add(results, out):
    results.extend(out[:, 0].tolist())


def main():
    if "WORLD_SIZE" in os.environ:
        torch.distributed.init_process_group("gloo")
    data = torch.arange(30.0).reshape(10, 3)
    model = torch.nn.Identity()
{calls}
    with open(f"{{sys.argv[1]}}.{{os.environ.get('RANK', 0)}}", "w") as file:
        json.dump(values, file)


main()
"""
EVALUATION = """\
def evaluate_{number}(model, loader):
    model.eval()
{begin}
    with torch.no_grad():
        for batch in loader:
            out = model(batch)
{update}
    return {value}
"""
# What a loop begins with, what it does with a batch's output, and what is made of that.
SHARED = {
    "a mean over batches": ("total = 0.0", "total += out.mean().item()", "total / len(loader)"),
    "a mean in a message": (
        "total, info = 0.0, float",
        "total += out.mean().item()",
        "info(total / len(loader))",
    ),
    "over batches counted above": (
        "size = len(loader.dataset)\nbatches = len(loader)\ntotal = 0.0",
        "total += out.mean().item()",
        "total / batches + size",
    ),
    "progress in batches": (
        "total = 0.0",
        "total += out.sum().item()\nprint('of', len(loader))",
        "total",
    ),
    "a sum by name": ("total = 0.0", "total = total + out.sum().item()", "total"),
    "rows of numpy": (
        "rows = np.array([])",
        "rows = np.append(rows, out[:, 1].numpy())",
        "rows.tolist()",
    ),
    "rows that begin as None": (
        "rows = None\nfirst = None",
        "if rows is None:\n    rows = out.numpy()\n    first = out[:, 0].numpy()\n"
        "else:\n    rows = np.append(rows, out.numpy(), axis=0)\n"
        "    first = np.concatenate((first, out[:, 0].numpy()))",
        "[rows.tolist(), first.tolist()]",
    ),
    "rows of torch": (
        "rows = torch.empty(0, 3)",
        "rows = torch.cat([rows, out], dim=0)",
        "rows.tolist()",
    ),
    "a table": (
        "table = np.zeros((3, 2))",
        "for row in out.long().tolist():\n    table[row[0] % 3, row[1] % 2] += 1",
        "table.tolist()",
    ),
    "a meter": (
        "mean, greatest = AverageMeter(), AverageMeter()",
        "mean.update(out.mean().item(), len(out))\ngreatest.update(out.max())",
        "[mean.avg, mean.sum, greatest.avg.item()]",
    ),
    "a tensor": ("total = torch.zeros(3)", "total += out.sum(0)", "total.tolist()"),
    "inputs that get one more": (
        "total = 0.0",
        "inputs = {'scores': out}\nif len(out):\n    inputs['size'] = out.shape[1]\n"
        "total += inputs['scores'].sum().item() * inputs['size']",
        "total",
    ),
}
WHOLE = {
    "a list that a function fills": ("rows, n = [], 0", "add(rows, out)\nn += 1", "[rows, n]"),
    "a table that numpy fills": (
        "table = np.zeros(30)\nn = 0",
        "np.add.at(table, out[:, 0].long().numpy(), 1)\nn += 1",
        "[table.tolist(), n]",
    ),
    "columns": (
        "rows = np.empty((3, 0))",
        "rows = np.concatenate((rows, out.numpy().T), axis=1)",
        "rows.tolist()",
    ),
    "rows in front": ("rows = torch.empty(0, 3)", "rows = torch.cat([out, rows])", "rows.tolist()"),
    "the first rows alone": (
        "first = None\nn = 0",
        "if first is None:\n    first = out\nn += 1",
        "[first.tolist(), n]",
    ),
    "a table by what was seen": (
        "table = np.zeros(10)\nn = 0",
        "table[n] += 1\nn += 1",
        "[table.tolist(), n]",
    ),
    "a share of the batches": (
        "batches = len(loader)\ntotal = 0.0",
        "total += out.mean().item() / batches",
        "total",
    ),
    "the last batch": (
        "total, seen = 0.0, 0",
        "seen += 1\nif seen == len(loader):\n    total += out.sum().item()",
        "total",
    ),
    "a meter's last value": (
        "mean = AverageMeter()",
        "mean.update(out.mean().item(), len(out))",
        "[mean.avg, mean.val]",
    ),
    "a moving average": ("mean = MovingAverage()", "mean.update(out.mean().item())", "mean.avg"),
    "inputs that are of all batches": (
        "inputs, n = {}, 0",
        "inputs[out[0, 0].item()] = 1\nn += 1",
        "[sorted(inputs), n]",
    ),
    "inputs of the first batch": (
        "inputs, n = {}, 0",
        "if n == 0:\n    inputs = {'first': 0}\ninputs['sum'] = out.sum().item()\nn += 1",
        "[inputs['sum'], n]",
    ),
    "inputs that are kept": (
        "n = 0\nkept = {}",
        "inputs = kept\ninputs[out[0, 0].item()] = 1\nn += 1",
        "[sorted(kept), n]",
    ),
    "a difference": ("total = 0.0", "total = total - out.sum().item()", "total"),
}


def script(cases: list[tuple[str, str, str]]) -> str:
    functions = [
        EVALUATION.format(
            number=number,
            begin=textwrap.indent(begin, "    "),
            update=textwrap.indent(update, 12 * " "),
            value=value,
        )
        for number, (begin, update, value) in enumerate(cases)
    ]
    calls = ["values = []"]
    for number in range(len(cases)):
        calls.append(f"loader_{number} = DataLoader(data, batch_size=3)")
        calls.append(f"values.append(evaluate_{number}(model, loader_{number}))")
    return SCRIPT.format(
        functions="\n\n".join(functions), calls=textwrap.indent("\n".join(calls), "    ")
    )


def test_ranks_put_together_what_one_process_has(tmp_path: Path, forge: Forge) -> None:
    text = script([*SHARED.values(), *WHOLE.values()])
    (alone,) = written(forge, tmp_path, "original", text, None)
    new = fixed("DF505", text)
    assert new.count("shard_of_batches(data, 3)") == len(SHARED)
    assert written(forge, tmp_path, "shared", new, None) == [alone]
    for values in written(forge, tmp_path, "ranks", new, 2):
        for name, value, expected in zip((*SHARED, *WHOLE), values, alone, strict=True):
            assert (
                value == pytest.approx(expected)
                if isinstance(value, float)
                else (value == expected)
            ), name


@pytest.mark.parametrize("name", SHARED)
def test_what_can_be_put_together_is_dealt(name: str) -> None:
    new = fixed("DF505", script([SHARED[name]]))
    assert "shard_of_batches(data, 3)" in new
    assert fixed("DF505", new) == new


@pytest.mark.parametrize("name", WHOLE)
def test_what_cannot_is_evaluated_whole(name: str) -> None:
    text = script([WHOLE[name]])
    assert fixed("DF505", text) == text
