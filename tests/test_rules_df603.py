"""DF603: A distributed run saves nothing."""

from __future__ import annotations

import textwrap

import pytest
from cases import fixed, found

SCRIPT = """
import argparse
import os
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
args = parser.parse_args()
{before}
if args.local_rank != -1:
    model = torch.nn.parallel.DistributedDataParallel(model)
for epoch in range(3):
    for batch in loader:
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
    if {test}:
        {body}
{behind}
"""
LONE = "args.local_rank == -1"
SAVE = "torch.save(model.state_dict(), 'last.pt')"
HELPER = f"def keep(model):\n    {SAVE}"


def script(**parts: str) -> str:
    return SCRIPT.format(**{"before": "", "test": LONE, "body": SAVE, "behind": "", **parts})


def opened(**parts: str) -> str:
    lone = f"    if {LONE}:\n        {{}}\n"
    body = parts.get("body", SAVE)
    return script(**parts).replace(lone.format(body), f"    {body}\n")


# A sentence, and a script that comes close and is right.
NOOP: list[tuple[str, str]] = [
    ("rank 0 saves", script(test="args.local_rank in [-1, 0]")),
    ("all ranks save, which is another matter", script(test="epoch > 1")),
    ("no weights", script(body="torch.save(args, 'args.bin')")),
    ("a tokenizer", script(body="tokenizer.save_pretrained('last')")),
    ("ranks save by another line", script(
        behind="if args.local_rank == 0:\n    torch.save(model.module.state_dict(), 'last.pt')")),
    ("ranks save in the other branch", script(body=f"{SAVE}\n    elif args.local_rank == 0:\n"
        "        torch.save(model.module.state_dict(), 'last.pt')")),
    ("a program of one process", script().replace("loss.backward()", "pass")),
]  # fmt: skip

# A sentence, a script that is wrong, and the same one after `patch`.
FIX: list[tuple[str, str, str]] = [
    ("the weights of the last epoch", script(), opened()),
    ("by a library", script(body="model.save_pretrained('last')"),
     opened(body="model.save_pretrained('last')")),
    ("by a function", script(before=HELPER, body="keep(model)"),
     opened(before=HELPER, body="keep(model)")),
    ("on demand", script(test=f"{LONE} and args.keep"), script(test="args.keep")),
    ("where the opposite does not hold",
     script(test=f"not {LONE}", body=f"pass\n    else:\n        {SAVE}"), opened()),
    ("beside other files", script(body=f"os.makedirs('last'); {SAVE}"),
     script(test="%").replace("    if %:\n", "").replace(
         f"        {SAVE}", f"    os.makedirs('last'); {SAVE}")),
]  # fmt: skip


@pytest.mark.parametrize(
    "parts",
    [
        {"body": f"evaluate(model); {SAVE}"},
        {"body": f"{SAVE}\n    else:\n        print('not saved')"},
    ],
)
def test_where_more_hangs_on_the_test_it_is_reported_only(parts: dict[str, str]) -> None:
    (finding,) = found("DF603", script(**parts))
    assert finding.edits == ()
    assert finding.because == f"no rank saves in line {finding.at.lineno + 1}"


def test_both_tables_are_filled() -> None:
    assert NOOP, "write down a script that DF603 leaves alone"
    assert FIX, "write down a script that DF603 finds something in, and what patch makes of it"


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NOOP])
def test_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF603", text)] == []


@pytest.mark.parametrize(
    ("before", "after"), [pytest.param(before, after, id=name) for name, before, after in FIX]
)
def test_found_and_repaired(before: str, after: str) -> None:
    assert found("DF603", before)
    assert fixed("DF603", before) == textwrap.dedent(after).lstrip("\n")
    assert found("DF603", after) == []
