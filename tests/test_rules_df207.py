"""DF207: A rank counts all cards of its machine."""

from __future__ import annotations

import textwrap

import pytest
from cases import fixed, found

# What the set-up does before and after it makes the group, if it does, and what wraps the model.
SCRIPT = """
import torch

def set_up(args):
    {before}
    if args.distributed:
        torch.distributed.init_process_group("nccl")
        {in_group}
    {behind}

def main(args, model):
    set_up(args)
    if {test}:
        model = torch.nn.DataParallel(model)
"""
COUNT = "args.n_gpu = torch.cuda.device_count()"
ONE = "args.n_gpu = 1  # a rank has one card"


def script(
    before: str = "pass",
    in_group: str = "args.rank = 0",
    behind: str = "pass",
    test: str = "args.n_gpu > 1",
) -> str:
    return SCRIPT.format(before=before, in_group=in_group, behind=behind, test=test)


# A sentence, and a script that comes close and is right.
NOOP: list[tuple[str, str]] = [
    ("it is 1 in a group", script(COUNT, "args.n_gpu = 1")),
    ("a group has none", script(COUNT, test="args.n_gpu > 1 and not args.distributed")),
    ("there is no group", script(COUNT).replace("init_process_group", "get_rank")),
    ("a lone process counts",
     script(f"if args.local_rank == -1:\n        {COUNT}")),
    ("it is an option", script(test="args.n_gpu > 1")),
]  # fmt: skip

# A sentence, a script that is wrong, and the same one after `patch`.
FIX: list[tuple[str, str, str]] = [
    (
        "the group comes later",
        script(COUNT),
        script(COUNT, f"{ONE}\n        args.rank = 0"),
    ),
    (
        "the group is there",
        script(behind=COUNT),
        script(behind=f"{COUNT}\n    if torch.distributed.is_initialized():\n        {ONE}"),
    ),
]


def test_both_tables_are_filled() -> None:
    assert NOOP, "write down a script that DF207 leaves alone"
    assert FIX, "write down a script that DF207 finds something in, and what patch makes of it"


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NOOP])
def test_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF207", text)] == []


@pytest.mark.parametrize(
    ("before", "after"), [pytest.param(before, after, id=name) for name, before, after in FIX]
)
def test_found_and_repaired(before: str, after: str) -> None:
    assert found("DF207", before)
    assert fixed("DF207", before) == textwrap.dedent(after).lstrip("\n")
    assert found("DF207", after) == []


def test_a_group_of_another_function_is_reported() -> None:
    text = script(COUNT).replace('torch.distributed.init_process_group("nccl")', "start()")
    (finding,) = found("DF207", text + "\ndef start():\n    torch.distributed.init_process_group()")
    assert not finding.edits
