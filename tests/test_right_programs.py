"""Programs for several ranks that are right as they are: nothing in them is called an error."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from command_line import run

SPAWNED = """\
import argparse
import os
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from data import train_set

parser = argparse.ArgumentParser()
parser.add_argument("--folder", default="run")

def main():
    args = parser.parse_args()
    cards = torch.cuda.device_count()
    {number}
    torch.multiprocessing.spawn(work, (args,), cards)

def work(gpu, args):
    {renumber}
    torch.distributed.init_process_group("gloo", world_size=args.world_size, rank={rank})
    model = torch.nn.Linear(4, 2)
    device = torch.device("cuda", gpu)
    if device.type == "cuda":
        model = torch.nn.parallel.DistributedDataParallel(model.to(device), device_ids=[gpu])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    sampler = DistributedSampler(train_set)
    first = 0
    if os.path.exists(args.folder + "/last.pt"):
        state = torch.load(args.folder + "/last.pt", map_location="cpu")
        first = state["epoch"]
        model.load_state_dict(state["model"])
    for epoch in range(first, 10):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(train_set, sampler=sampler):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        if {rank} == 0:
            state = {{"epoch": epoch + 1, "model": model.state_dict()}}
            torch.save(state, args.folder + "/last.pt")

if __name__ == "__main__":
    main()
"""
NUMBERED = {
    "rank": "args.rank",
    "number": "args.rank = 0\n    args.world_size = cards",
    "renumber": "args.rank += gpu",
}
RIGHT = [
    pytest.param(SPAWNED.format(**NUMBERED), id="ranks counted up from their machine's first"),
    pytest.param(
        SPAWNED.format(
            rank="args.number",
            number='args.number = int(os.environ["OMPI_COMM_WORLD_RANK"])\n'
            "    args.world_size = 2 * cards",
            renumber="args.number = args.number * torch.cuda.device_count() + gpu",
        ),
        id="a rank by another name",
    ),
]


def errors(folder: Path, text: str) -> list[str]:
    path = folder / "train.py"
    path.write_text(textwrap.dedent(text))
    found = json.loads(run("check", "--output-format", "json", path).stdout)
    return [
        f"{each['code']} {each['line']}: {each['because']}"
        for each in found
        if each["severity"] == "error"
    ]


@pytest.mark.parametrize("text", RIGHT)
def test_nothing_in_it_is_an_error(tmp_path: Path, text: str) -> None:
    assert errors(tmp_path, text) == []
