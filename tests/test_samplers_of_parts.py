"""Training on a part of the data, or by weights: ranks share what the sampler draws."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import written
from ddpfix.patcher.engine.patch import patch
from forked import Forge

SCRIPT = """\
import json
import os
import sys

import torch
from torch.utils.data import DataLoader
from torch.utils.data import SequentialSampler, SubsetRandomSampler, WeightedRandomSampler

data = [(torch.tensor([float(i)]), i) for i in range(20)]
model = torch.nn.DataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
seen = []
loader = DataLoader(data, batch_size=2, sampler={sampler})
for epoch in range(2):
    seen.append([])
    for x, number in loader:
        seen[-1] += number.tolist()
        model(x).mean().backward()
        optimizer.step()
with open(f"{{sys.argv[1]}}.{{os.environ.get('RANK', 0)}}", "w") as file:
    json.dump(seen, file)
"""


def seen_by_ranks(sampler: str, forge: Forge, folder: Path) -> list[list[list[int]]]:
    script = folder / "train.py"
    script.write_text(SCRIPT.format(sampler=sampler))
    result = patch(script)
    assert result.refusal == ""
    (change,) = result.changes
    ranks: list[list[list[int]]] = written(forge, folder, "ranks", change.text, 2)
    return ranks


def test_ranks_share_the_part_that_a_sampler_draws(forge: Forge, tmp_path: Path) -> None:
    sampler = "SubsetRandomSampler([i for i in range(20) if i % 5])"
    first, second = seen_by_ranks(sampler, forge, tmp_path)
    for mine, others in zip(first, second, strict=True):
        assert sorted(mine + others) == [i for i in range(20) if i % 5]
    assert first[0] != first[1]  # another order in the next epoch


def test_weights_hold_on_ranks(forge: Forge, tmp_path: Path) -> None:
    sampler = "WeightedRandomSampler([1.0] * 5 + [0.0] * 15, 12)"
    first, second = seen_by_ranks(sampler, forge, tmp_path)
    assert [len(each) for each in (*first, *second)] == [6, 6, 6, 6]
    assert {number for each in (*first, *second) for number in each} <= set(range(5))


@pytest.mark.parametrize("sampler", ["SequentialSampler(data)", "None"])
def test_a_rank_takes_every_second_one_in_order(sampler: str, forge: Forge, tmp_path: Path) -> None:
    ranks = seen_by_ranks(sampler, forge, tmp_path)
    assert ranks == [[[*range(start, 20, 2)]] * 2 for start in (0, 1)]
