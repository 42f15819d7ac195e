"""DF102: The world's size is an option that no launcher passes."""

from __future__ import annotations

import textwrap

import pytest
from cases import fixed, found

SCRIPT = """
import argparse, os, torch
parser = argparse.ArgumentParser()
parser.add_argument("--world-size", default=1, type=int)
parser.add_argument("--rank", default=0, type=int)
parser.add_argument("--url", default="tcp://10.0.0.1:9999")
args = parser.parse_args(){behind}
if args.world_size > 1:
    torch.distributed.init_process_group({group})
"""
GROUP = "'nccl', init_method=args.url, world_size=args.world_size, rank=args.rank"
FROM_LAUNCHER = """
if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:  # torchrun, accelerate launch
    args.world_size = int(os.environ['WORLD_SIZE'])"""
RANK = """
    args.rank = int(os.environ['RANK'])"""
URL = """
    args.url = 'env://'"""

CARD = """
    args.gpu = int(os.environ['LOCAL_RANK'])"""
SAMPLER = """
class Sampler:
    def __init__(self, rank):
        self.rank = rank
"""


def script(group: str = GROUP, behind: str = "") -> str:
    return SCRIPT.format(group=group, behind=behind)


def with_card(text: str) -> str:
    """The same, where an option may choose the card of a process that is started by hand."""
    return text.replace('"--rank"', '"--gpu", type=int)\nparser.add_argument("--rank"').replace(
        "if args.world_size",
        "if args.gpu:\n    torch.cuda.set_device(int(args.gpu))\nif args.world_size",
    )


def passed_on(text: str) -> str:
    """The same, where the group is made in a function that another one calls."""
    group = "    torch.distributed.init_process_group('nccl', world_size=size, rank=rank)\n"
    text = text[: text.index("if args.world_size")]
    return (
        f"{text}def begin(size, rank):\n{group}def train(rank, n):\n    begin(n, rank)\n"
        "train(args.rank, args.world_size)\n"
    )


def parsed_twice(text: str) -> str:
    """The same, where some arguments are set to their defaults before they are parsed again."""
    first, behind = text.split("args = parser.parse_args()")
    parsed, rest = behind.split("if args.world_size")
    parsed = f"args = parser.parse_args(){parsed}"
    return f"{first}{parsed}parser.set_defaults(url='x')\n{parsed}if args.world_size{rest}"


# A sentence, and a script that comes close and is right.
NOOP: list[tuple[str, str]] = [
    ("torch asks the environment", script("'nccl', init_method=args.url")),
    ("so does the script", script(behind="\nargs.size = int(os.environ['WORLD_SIZE'])")),
    ("it takes its rank from Slurm", script(behind="\nrank = os.environ.get('SLURM_PROCID')")),
    ("it computes the size", script(behind="\nargs.world_size = 2 * args.world_size")),
    ("it starts its ranks itself", script().replace("if args.world_size", "def worker(rank):\n  if "
        "args.world_size") + "torch.multiprocessing.spawn(worker, nprocs=2)\n"),
    ("an address alone is an option", script("'nccl', args.url, world_size=2, rank=args.rank")),
]  # fmt: skip

# A sentence, a script that is wrong, and the same one after `patch`.
FIX: list[tuple[str, str, str]] = [
    ("all of them are options", script(), script(behind=FROM_LAUNCHER + RANK + URL)),
    (
        "by position",
        script("'nccl', args.url, None, args.world_size, args.rank"),
        script("'nccl', args.url, None, args.world_size, args.rank", FROM_LAUNCHER + RANK + URL),
    ),
    (
        "a sampler has a rank of its own, which is no option",
        script() + SAMPLER,
        script(behind=FROM_LAUNCHER + RANK + URL) + SAMPLER,
    ),
    ("functions pass them on", passed_on(script()), passed_on(script(behind=FROM_LAUNCHER + RANK))),
    (
        "they are parsed twice",
        parsed_twice(script()),
        parsed_twice(script(behind=FROM_LAUNCHER + RANK + URL)),
    ),
    (
        "an option chooses the card",
        with_card(script()),
        with_card(script(behind=FROM_LAUNCHER + RANK + URL + CARD)),
    ),
    (
        "the size alone",
        script("'nccl', world_size=args.world_size"),
        script("'nccl', world_size=args.world_size", FROM_LAUNCHER),
    ),
]


def test_both_tables_are_filled() -> None:
    assert NOOP, "write down a script that DF102 leaves alone"
    assert FIX, "write down a script that DF102 finds something in, and what patch makes of it"


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NOOP])
def test_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF102", text)] == []


@pytest.mark.parametrize(
    ("before", "after"), [pytest.param(before, after, id=name) for name, before, after in FIX]
)
def test_found_and_repaired(before: str, after: str) -> None:
    assert found("DF102", before)
    assert fixed("DF102", before) == textwrap.dedent(after).lstrip("\n")
    assert found("DF102", after) == []
