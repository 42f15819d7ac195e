"""DF701: what the batch flag counts."""

from __future__ import annotations

import pytest
from cases import found
from ddpfix.patcher.findings import Severity

SCRIPT = """\
import argparse
from torch.utils.data import DataLoader
parser = argparse.ArgumentParser()
parser.add_argument("--train_batch_size", type=int, default=16)
args = parser.parse_args()
{before}
for batch in DataLoader(data, batch_size={size}):
    model(batch).backward()
"""

NOOP = [
    ("divided by the world", "args.train_batch_size // args.world_size", "pass"),
    (
        "divided by the cards that are counted",
        "args.train_batch_size",
        "cards = torch.cuda.device_count()\nargs.train_batch_size = args.train_batch_size // cards",
    ),
    (
        "divided by the cards that a caller counts",
        "part",
        "def size_for(cards):\n    part = int(args.train_batch_size / cards)\n    return part\n"
        "part = size_for(int(torch.cuda.device_count()))",
    ),
    ("a number", "16", "pass"),
    ("another flag", "args.size", "pass"),
]


@pytest.mark.parametrize(
    ("size", "before"), [pytest.param(s, b, id=name) for name, s, b in NOOP]
)  # fmt: skip
def test_a_batch_that_no_flag_counts_is_left_alone(size: str, before: str) -> None:
    assert found("DF701", SCRIPT.format(size=size, before=before)) == []


@pytest.mark.parametrize(
    ("size", "before", "what"),
    [
        pytest.param("args.train_batch_size", "pass", "examples of one process: 16", id="as it is"),
        pytest.param(
            "args.train_batch_size // args.gradient_accumulation_steps",
            "pass",
            "examples of one process and one whole optimizer step: 16",
            id="of a whole step",
        ),
        pytest.param(
            "args.batch",
            "args.each = args.train_batch_size // args.n_gpu\n"
            "args.batch = args.each * max(1, args.n_gpu)",
            "examples of one process, whatever cards it sees: 16",
            id="of all cards",
        ),
        pytest.param(
            "size",
            "size = args.train_batch_size * max(1, args.n_gpu)",
            "examples of each card that one process sees: 16",
            id="of a card",
        ),
    ],
)
def test_what_a_batch_flag_counts_is_noted_with_its_numbers(
    size: str, before: str, what: str
) -> None:
    (finding,) = found("DF701", SCRIPT.format(size=size, before=before))
    assert finding.severity is Severity.NOTE
    assert finding.because == f"--train_batch_size counts {what} by default, 64 on 4 ranks"
