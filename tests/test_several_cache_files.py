"""Files that are written where one of them is missing: rank 0 does so before the others look."""

from __future__ import annotations

import pytest
from cases import fixed, found

SCRIPT = """
import json
import os
import numpy as np
import torch
from torch.utils.data import DataLoader
torch.distributed.init_process_group("gloo")
{above}
if not os.path.exists("x.npy"):
    {body}
x, y = np.load("x.npy"), np.load("y.npy")
"""
BOTH = 'np.save("x.npy", x)\n    np.save("y.npy", y)'
PREPARED = 'def prepare():\n    np.save("x.npy", x)\n    json.dump(names, open("n.json", "w"))'
PARTS = """\
def dump(values, path):
    data = pickle.dumps(values)
    with open(path, "wb") as file:
        for start in range(0, len(data), 9):
            file.write(data[start : start + 9])
def save(path, values):
    dump(values, path)"""
SCORED = """\
def scores(model):
    with torch.no_grad():
        return [model(batch) for batch in loader]"""


def script(body: str, above: str = "pass") -> str:
    return SCRIPT.format(body=body, above=above)


@pytest.mark.parametrize(
    ("body", "above"),
    [
        (BOTH, "pass"),
        ("prepare()", PREPARED),
        ('save("x.npy", x)', PARTS),
        ('os.mkdir("out")\n    table.to_csv("a.csv")\n    torch.save(x, "x.pt")', "pass"),
    ],
    ids=["where they are", "by a function", "in parts", "into a new folder"],
)
def test_rank_0_comes_first(body: str, above: str) -> None:
    text = fixed("DF608", script(body, above))
    before, behind = text.split('if not os.path.exists("x.npy"):')
    assert before.endswith("!= 0:\n    torch.distributed.barrier()  # rank 0 comes first\n")
    assert "get_rank() == 0:\n    torch.distributed.barrier()\nx, y = " in behind
    assert found("DF608", text) == []
    assert found("DF607", text) == []


@pytest.mark.parametrize(
    ("body", "above"),
    [
        ('np.save("x.npy", x)', "pass"),
        ("x = scores(model)\n    " + BOTH, SCORED),
        ("for batch in DataLoader(data):\n        x = model(batch)\n    " + BOTH, "pass"),
        ("for batch in loader:\n        model(batch).backward()\n    " + BOTH, "pass"),
    ],
    ids=["one file", "an evaluation", "batches", "a training"],
)
def test_it_does_not_where_one_may_appear_at_once_or_ranks_meet(body: str, above: str) -> None:
    assert found("DF608", script(body, above)) == []
