"""A rank of a matrix, or of LoRA, deals no examples and is no process's number."""

from __future__ import annotations

import textwrap

import pytest
from cases import fixed, found

TRAINING = """
import os
import torch
from argparse import ArgumentParser
from torch.utils.data import DataLoader
parser = ArgumentParser()
parser.add_argument("--{option}", type=int, default={default})
args = parser.parse_args()
torch.distributed.init_process_group("nccl")
{layers}
loader = DataLoader(data, batch_size=8, shuffle=True)
for x, y in loader:
    loss = model(x, y)
    loss.backward()
    optimizer.step()
"""


def training(layers: str, option: str = "rank", default: str = "8") -> str:
    return TRAINING.format(layers=textwrap.dedent(layers), option=option, default=default)


SIZES = [
    ("an option", training("model = Adapted(net, rank=args.rank)")),
    ("a parameter with a default", training("""
        def adapted(net, rank=4):
            return Adapted(net, rank=rank)
        model = adapted(net)
        """, "size")),
    ("a parameter that gets an option of a size", training("""
        def adapted(net, rank):
            return Adapted(net, rank=rank)
        model = adapted(net, args.lora_rank)
        """, "lora_rank")),
    ("an attribute", training("""
        class Kernel:
            def __init__(self, rank=1):
                self.rank = rank
            def build(self):
                return low_rank(rank=self.rank)
        model = Kernel().build()
        """, "size")),
    ("parts of a split that are not taken by rank", training("data = data.split(8)[args.part]",
        "part")),
    ("a place that is no rank's", training("""
        begin = args.part * 8
        first = data[begin : begin + 8]
        """, "part")),
    ("a field", training("""
        @dataclass
        class Config:
            rank: int = 16
        config = Config()
        model = Adapted(net, rank=config.rank)
        """, "size")),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in SIZES])
def test_a_size_deals_no_examples(text: str) -> None:
    assert "sampler=" in fixed("DF401", text)


RANKS = [
    ("an option of a process", training("data = Shards(rank=args.rank)", "rank", "0")),
    ("one without a default", training("""
        def shards(rank):
            return Shards(rank=rank)
        data = shards(int(os.environ["RANK"]))
        """, "size")),
    ("a part of all examples", training("data = data.split(size)[args.rank].clone()", "rank", "0")),
    ("a part of a list of parts", training("""
        rank = torch.distributed.get_rank()
        files = list(numpy.array_split(files, size))[rank]
        """, "size")),
    ("a part by the number of a spawned process, which is 0 in another place", training("""
        def work(rank, data):
            data = data.chunk(size)[rank]
        if args.size > 1:
            torch.multiprocessing.spawn(work, args=(data,), nprocs=args.size)
        else:
            work(0, data)
        """, "size")),
    ("a part of each batch, by a name for its begin", training("""
        def part(batch, rank, size):
            begin = size * rank
            return batch[begin : begin + size]
        collate = lambda batch: part(batch, args.rank, 8)
        """, "rank", "0")),
    ("a part of each batch, by a place that an object keeps", training("""
        class Tokens:
            def __init__(self, rank, size):
                self.place = rank * size
            def take(self):
                return tokens[self.place : self.place + 8]
        data = Tokens(args.rank, 8)
        """, "rank", "0")),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in RANKS])
def test_a_process_s_rank_deals_them(text: str) -> None:
    assert found("DF401", text) == []
