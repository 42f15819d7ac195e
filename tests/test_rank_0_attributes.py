"""DF502: attributes that only rank 0 binds, as a writer of args or of self."""

from __future__ import annotations

import re

import pytest
from cases import fixed, found
from ddpfix.patcher.findings import Severity

ARGS = """
import torch
from argparse import ArgumentParser
parser = ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)

def score(args, model):
    {read}

def main():
    args = parser.parse_args()
    if {test}:
        args.writer = SummaryWriter("runs")
    score(args, model)

main()
"""
SELF = """
import torch

class Trainer{bases}:
    {first}
    def __init__(self, rank):
        self.rank = rank
        if self.rank == 0:
            self.writer = SummaryWriter("runs")
    def score(self):
        {read}

trainer = Trainer(torch.distributed.get_rank())
trainer.score()
"""
CALL = "writer.add_scalar('loss', 1)"


def of_args(read: str = f"args.{CALL}", test: str = "args.local_rank in [-1, 0]") -> str:
    return ARGS.format(read=read, test=test)


def of_self(read: str = f"self.{CALL}", bases: str = "", first: str = "pass") -> str:
    return SELF.format(read=read, bases=bases, first=first)


@pytest.mark.parametrize("text", [of_args(), of_self(), of_self(bases="(torch.nn.Module)")])
def test_calls_of_what_rank_0_has_are_left_to_it(text: str) -> None:
    after = fixed("DF502", text)
    assert re.search(rf"if is_main_process\(\):\n +\w+\.{re.escape(CALL)}", after)
    assert found("DF502", after) == []


def test_what_is_read_otherwise_is_told() -> None:
    (finding,) = found("DF502", of_args("steps = len(args.writer.steps)"))
    assert finding.because == "args.writer is bound in line 12 only; the other ranks lack it"
    assert not finding.edits


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(of_args(f"if args.local_rank in [-1, 0]: args.{CALL}"), id="tested"),
        pytest.param(of_args(f"if hasattr(args, 'writer'): args.{CALL}"), id="asked for"),
        pytest.param(of_args(test="args.local_rank == -1"), id="of a lone process"),
        pytest.param(of_args(test="args.tensorboard"), id="no test of the rank"),
        pytest.param(
            of_args().replace('"--local_rank"', '"--writer")\nparser.add_argument("--local_rank"'),
            id="an option",
        ),
        pytest.param(of_self(first="writer = None"), id="a class has it"),
        pytest.param(of_self(bases="(LightningModule)"), id="a library may bind it"),
        pytest.param(
            of_self().replace("    def score", "        else:\n            self.writer = NoWriter()"
                              "\n    def score"),
            id="the other ranks have their own",
        ),
    ],
)  # fmt: skip
def test_what_all_ranks_may_have_is_left(text: str) -> None:
    assert found("DF502", text) == []


def test_a_method_that_nobody_is_seen_to_call_is_no_error() -> None:
    (certain,) = found("DF502", of_self())
    (perhaps,) = found("DF502", of_self().replace("trainer.score()", "pass"))
    assert (certain.severity, perhaps.severity) == (Severity.ERROR, Severity.DEGRADED)
