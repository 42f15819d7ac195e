"""DF604: ranks that have met may read what rank 0 saved; DF101: arguments that know the rank."""

from __future__ import annotations

import textwrap

import pytest
from cases import found

READ = """
import torch
from transformers import AutoProcessor
{head}
def main(accelerator, folder):
    if accelerator.is_main_process:
        tokenizer.save_pretrained(folder)
    {meet}
    processor = AutoProcessor.from_pretrained(folder)
main(accelerator, "out")
"""
MEETINGS = [
    ("accelerator.wait_for_everyone()", ""),
    ("torch.distributed.monitored_barrier()", ""),
    ("synchronize()", "def synchronize():\n    torch.distributed.barrier()\n"),
]


@pytest.mark.parametrize(("meet", "head"), MEETINGS)
def test_ranks_that_have_met_read_the_folder(meet: str, head: str) -> None:
    assert found("DF604", READ.format(meet=meet, head=head)) == []


PERHAPS = "def synchronize():\n    {0}\n"
NO_MEETINGS = {
    "nothing": ("print(folder)", ""),
    "a test of an option": (
        "if args.do_eval:\n        synchronize()", PERHAPS.format("torch.distributed.barrier()")
    ),
    "a test in the function": (
        "synchronize()", PERHAPS.format("if args.do_eval:\n        torch.distributed.barrier()")
    ),
    "rank 0 alone": (
        "synchronize()",
        PERHAPS.format("if accelerator.is_main_process:\n        torch.distributed.barrier()"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("meet", "head"), NO_MEETINGS.values(), ids=NO_MEETINGS)
def test_ranks_that_may_not_have_met_may_read_too_early(meet: str, head: str) -> None:
    (finding,) = found("DF604", READ.format(meet=meet, head=head))
    assert "rank 0 may still be writing" in finding.because


PARSED = """
from transformers import HfArgumentParser, {parent}

class Settings({parent}):
    pass

args, = HfArgumentParser((Settings,)).parse_args_into_dataclasses()
print(args.local_rank)
"""


def test_arguments_of_transformers_read_the_environment() -> None:
    parser = "class Parent:\n    local_rank: int = -1\n"
    own = PARSED.replace(", {parent}", "\n" + parser).format(parent="Parent")
    assert found("DF101", own)
    assert found("DF101", textwrap.dedent(PARSED).format(parent="Seq2SeqTrainingArguments")) == []
