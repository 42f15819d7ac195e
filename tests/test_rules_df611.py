"""DF611: Every rank asks the user."""

from __future__ import annotations

import pytest
from cases import found

SCRIPT = """
import os, shutil, torch
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(Net())

def train(folder, input):
    {inside}
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()

def prepare(folder):
    {before}

prepare("out")
train("out", 1)
"""
ASKS = "if os.path.exists(folder) and input('remove it? ') == 'y': shutil.rmtree(folder)"


def script(before: str = "pass", inside: str = "pass") -> str:
    return SCRIPT.format(before=before, inside=inside)


@pytest.mark.parametrize(
    "text",
    [
        script(),
        script(inside="print(input(folder))"),  # a parameter
        script("tool.input('remove it? ')"),
        script(f"if torch.distributed.get_rank() == 0:\n        {ASKS}"),
        script(ASKS).replace("torch.distributed.init_process_group", "print"),
    ],
)
def test_left_alone(text: str) -> None:
    assert found("DF611", text) == []


def test_a_question_to_all_ranks_is_told_and_left() -> None:
    (finding,) = found("DF611", script(ASKS))
    assert finding.because == "input('remove it? ') waits for an answer"
    assert not finding.edits
