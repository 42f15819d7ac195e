"""DF401: a data set that is as long as the steps of one process is made longer for ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from ddpfix.patcher.engine.patch import patch

SCRIPT = """\
import argparse
import torch
from data import Rows
from torch.utils.data import DataLoader

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=4)
    parser.add_argument("--num_steps", type=int, default=8)
    args = parser.parse_args()
    model = torch.nn.DataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = Rows({length})
    for epoch in range(2):
        for x, y in DataLoader(rows, args.batch_size, shuffle=True):
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

main()
"""
RANKS = "torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1"
STEPS = "max_iters=args.num_steps * args.batch_size"


@pytest.mark.parametrize(
    ("length", "grows"),
    [
        (STEPS, True),
        ("num_samples=args.batch_size * args.num_steps", True),
        ("max_iters=args.num_steps", False),
        ("max_iters=args.num_steps * 4", False),
        ("buffer_size=args.num_steps * args.batch_size", False),
    ],
)
def test_ranks_have_examples_for_all_steps(tmp_path: Path, length: str, grows: bool) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.format(length=length))
    (change,) = patch(path).changes
    assert (f"Rows({length} * ({RANKS}))" in change.text) is grows
    path.write_text(change.text)
    assert not patch(path).changes


def test_who_knows_of_ranks_has_chosen_the_length(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    text = SCRIPT.format(length=STEPS).replace("nn.Data", "nn.parallel.DistributedData")
    made = '    torch.distributed.init_process_group("gloo")\n    model ='
    text = text.replace("    model =", made)
    path.write_text(text)
    assert all(RANKS not in change.text for change in patch(path).changes)
