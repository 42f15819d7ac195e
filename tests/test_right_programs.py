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
TRAINED = """\
import argparse
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from nets import Critic, Painter

parser = argparse.ArgumentParser()
parser.add_argument("--load")
{options}
args = parser.parse_args()
{group}
{freeze}
critic = DistributedDataParallel(Critic())
painter = {wrap}
optimizer = torch.optim.SGD(painter.parameters(), 0.1)

def switch(net, on):
    for weight in net.parameters():
        weight.requires_grad = on

def train():
    {sampler}
    for epoch in range(10):
        {epoch}
        for x, y in {batches}:
            {take_turns}
            optimizer.zero_grad()
            (painter(x) - y).abs().mean().backward()
            optimizer.step()
        if torch.distributed.get_rank() == 0:
            torch.save({{"net": painter.state_dict()}}, "last.pt")

train()
"""
PARTS = {
    "options": "",
    "group": 'torch.distributed.init_process_group("gloo")',
    "freeze": "",
    "wrap": "DistributedDataParallel(Painter())",
    "sampler": "sampler = DistributedSampler(data)",
    "epoch": "sampler.set_epoch(epoch)",
    "batches": "DataLoader(data, sampler=sampler)",
    "take_turns": "",
}


def trained(**parts: str) -> str:
    return TRAINED.format(**PARTS | parts)


BLOCKS = """\
def blocks(tokens, size):
    place, part = 0, size // torch.distributed.get_world_size()
    while True:
        block = tokens[place + torch.distributed.get_rank() * part :][:part]
        yield block, block
        place += size
"""
RIGHT = [
    pytest.param(
        trained(take_turns="switch(critic, False); switch(painter, True)"),
        id="two players, each frozen as a whole while the other one trains",
    ),
    pytest.param(
        trained(
            freeze="def make(net):\n    for name, weight in net.named_parameters():\n"
            "        weight.requires_grad = name != 'head'\n"
            "    return DistributedDataParallel(net)\n",
            wrap="make(Painter())",
        ).replace("\ntrain()", "\nfor trial in range(3):\n    make(Painter())\n    train()"),
        id="frozen before each wrapping, in a loop of trials",
    ),
    pytest.param(
        trained(freeze=BLOCKS, sampler="", epoch="", batches="blocks(torch.load(args.load), 64)"),
        id="a block of each batch for each rank",
    ),
    pytest.param(
        trained(
            freeze="from mpi4py import MPI\nfrom data import Images",
            sampler="shares = Images(shard=MPI.COMM_WORLD.Get_rank(), num_shards=8)",
            epoch="",
            batches="DataLoader(shares)",
        ),
        id="shares by MPI's rank",
    ),
    pytest.param(
        trained(
            options='parser.add_argument("--local_rank", type=int, default=-1)',
            group="import deepspeed\ndeepspeed.init_distributed()\n"
            "torch.cuda.set_device(args.local_rank)",
        ),
        id="the local rank that DeepSpeed's launcher passes",
    ),
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


WRITERS = """\
import logging
import os
import shutil
import torch
import torch.distributed as dist

def start(folder):
    dist.init_process_group("gloo", timeout=hour)
    logger = log_to(folder) if dist.get_rank() == 0 else log_to(None)
    clear(folder)
    args.saves = args.logs and first(args)
    if args.saves:
        shutil.rmtree(folder + "/old")
    for epoch in range(3):
        if args.distributed:
            sampler.set_epoch(epoch)
        train(epoch)
    dist.destroy_process_group()

def first(args):
    return args.rank % args.cards == 0

def log_to(folder):
    if dist.get_rank() == 0:
        logging.basicConfig(handlers=[logging.FileHandler(folder + "/log.txt")])
    return logging.getLogger()

@master_only
def clear(folder):
    os.rename(folder, folder + "_old")

def train(epoch):
    sampler = torch.utils.data.distributed.DistributedSampler(data)
    for step, batch in enumerate(progress.log_every(loader, 10)):
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()

start("run")
"""


def test_what_rank_0_alone_writes_and_removes_is_told_of_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(WRITERS)
    codes = ("DF402", "DF602", "DF607")
    output = run("check", "--select", ",".join(codes), "--output-format", "json", path)
    assert [each["because"] for each in json.loads(output.stdout)] == []


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


STEPS_BY_AN_OBJECT = """\
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

class Scaler:
    def __init__(self):
        self.scaler = torch.amp.GradScaler()
    def __call__(self, loss, optimizer):
        self.scaler.scale(loss).backward()
        self.scaler.step(optimizer)

def train_one_epoch(model, teacher, loader, optimizer, loss_scaler):
    model.train()
    for x in loader:
        with torch.no_grad():
            target = teacher(x)
        {step}

torch.distributed.init_process_group("gloo")
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    loader.sampler.set_epoch(epoch)
    train_one_epoch(model, teacher, loader, optimizer, Scaler())
"""


@pytest.mark.parametrize(
    ("step", "is_told"),
    [
        ("loss_scaler((model(x) - target).mean(), optimizer)", False),
        ("optimizer.zero_grad(); loss_scaler((model(x) - target).mean())", False),
        ("print(model(x) - target)", True),
    ],
    ids=["an optimizer is passed", "gradients are cleared", "an evaluation"],
)
def test_a_step_by_an_object_is_no_evaluation(tmp_path: Path, step: str, is_told: bool) -> None:
    path = tmp_path / "train.py"
    path.write_text(STEPS_BY_AN_OBJECT.replace("{step}", step))
    found = json.loads(run("check", "--output-format", "json", path).stdout)
    of_evaluations = [each for each in found if each["code"] in ("DF401", "DF503", "DF504")]
    assert bool(of_evaluations) is is_told
