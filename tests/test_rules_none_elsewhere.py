"""DF502: methods of what only rank 0 has, where the other ranks come to."""

from __future__ import annotations

import pytest
from cases import changes, fixed, found

SCRIPT = """
import torch

def main(args, model, loader):
    torch.distributed.init_process_group("gloo")
    if args.local_rank in [-1, 0]:
        writer = SummaryWriter()
    else:
        writer = None
    for batch in loader:
        model(batch).backward()
    {use}

main(*things())
"""
NOOP = [
    ("asked for", "if writer:\n        writer.close()"),
    ("under the test of the rank", "if args.local_rank in [-1, 0]:\n        writer.close()"),
    ("passed on", "log(writer)"),
]


@pytest.mark.parametrize("use", [pytest.param(use, id=name) for name, use in NOOP])
def test_what_rank_0_alone_uses_is_left_alone(use: str) -> None:
    assert found("DF502", SCRIPT.format(use=use)) == []


def test_a_call_of_none_is_left_to_rank_0() -> None:
    text = SCRIPT.format(use="writer.add_scalar('loss', 1.0)")
    (finding,) = found("DF502", text)
    assert finding.because == "writer is None on the other ranks, by line 8"
    diff = changes(text, fixed("DF502", text))
    assert "+    if is_main_process():\n+        writer.add_scalar('loss', 1.0)\n" in diff


def test_what_may_be_another_object_is_left_alone() -> None:
    text = SCRIPT.format(use="writer.close()").replace("writer = None", "writer = None or Other()")
    assert found("DF502", text) == []
