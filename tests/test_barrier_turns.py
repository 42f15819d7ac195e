"""What runs between barriers that let rank 0 come first."""

from __future__ import annotations

import pytest
from audited import audited
from cases import fixed, module
from ddpfix.patcher.analysis.ranks.barrier_turns import (
    between_barriers,
    goes_in_turn,
    may_be_in_turn,
    turns,
)
from ddpfix.patcher.analysis.training.program import Program

ALONE = """\
import torch.distributed as dist
from contextlib import contextmanager

@contextmanager
def first(rank):
    if rank not in [-1, 0]:
        dist.barrier()
    yield
    if rank == 0:
        dist.barrier()

class Data:
    def __init__(self, path):
        self.labels = labels_of(path)

def labels_of(path):
    found = [None] * dist.get_world_size()
    {inside}
    return found

def main(args):
    dist.init_process_group("gloo")
    {}
    Data("test")
if __name__ == "__main__":
    main(*things())
"""
BARRIERS = """\
if args.local_rank not in [-1, 0]:
        dist.barrier()
    print("first")
    data = Data("train")
    if args.local_rank == 0:
        dist.barrier()
"""
GATHER = "dist.all_gather_object(found, path)"


@pytest.mark.parametrize(
    ("main", "inside", "lines"),
    [
        (BARRIERS, GATHER, {26}),
        ("with first(args.local_rank):\n        data = Data('train')", GATHER, {24}),
        ("with accelerator.main_process_first():\n        data = Data('train')", GATHER, {24}),
        ("with log(args.local_rank):\n        data = Data('train')", GATHER, set()),
        (BARRIERS, "dist.barrier()", set()),  # each rank passes as many
        (BARRIERS, "print(found)", set()),
    ],
    ids=["barriers", "yields", "library", "no turn", "a barrier", "no exchange"],
)
def test_nothing_is_exchanged_while_the_others_wait(
    main: str, inside: str, lines: set[int]
) -> None:
    text = ALONE.replace("{inside}", inside).replace("{}", main, 1)
    told = {line for code, answer, line in audited(text) if (code, answer) == ("O6", "violated")}
    assert {line for line in told if line in (24, 26)} == lines


def test_a_place_in_a_turn_of_a_caller() -> None:
    program = Program(module(ALONE.replace("{inside}", GATHER).replace("{}", BARRIERS, 1)))
    (gather,) = program.script.calls_to("all_gather_object")
    assert may_be_in_turn(program, program.script, gather)
    assert not goes_in_turn(program, program.script, gather)  # another caller is in none


LABELLED = """\
import argparse
import torch
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

def labelled(args, model, data):
    sampler = SequentialSampler(data) if args.local_rank == -1 else DistributedSampler(data)
    loader = DataLoader(data, sampler=sampler, batch_size=8)
    found = []
    model.eval()
    with torch.no_grad():
        for batch in loader:
            found.append(model(batch).cpu().numpy())
    return found

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    args = parser.parse_args()
    model, teacher, data = made(), made(), read()
    if args.local_rank != -1:
        torch.distributed.init_process_group("nccl")
    if args.local_rank not in [-1, 0]:
        torch.distributed.barrier()
    scores = labelled(args, teacher, data)
    if args.local_rank == 0:
        torch.distributed.barrier()
    print(scores)
    if args.local_rank != -1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    sampler = RandomSampler(data) if args.local_rank == -1 else DistributedSampler(data)
    loader = DataLoader(data, sampler=sampler, batch_size=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1)
    for epoch in range(3):
        for batch in loader:
            model(batch).mean().backward()
            optimizer.step()
            optimizer.zero_grad()

if __name__ == "__main__":
    main()
"""


def test_in_its_turn_each_rank_evaluates_the_whole_set() -> None:
    patched = fixed("DF503", LABELLED)
    assert "else torch.utils.data.SequentialSampler(data)" in patched
    assert "gathered" not in patched


def test_turns_under_a_with_are_none_between_barriers() -> None:
    main = "with accelerator.main_process_first():\n        data = Data('train')"
    text = ALONE.format(main, inside="print(found)")
    program = Program(module(text))
    assert len(turns(program, program.script)) == 2
    assert len(between_barriers(program, program.script)) == 1
