"""DF508: Each rank evaluates in an order of its own."""

from __future__ import annotations

import textwrap

import pytest
from cases import fixed, found

SCRIPT = """
import torch
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler
{group}
loader = DataLoader(train_data, sampler=sampler)
dev_loader = DataLoader(data, {options})
for epoch in range(3):
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()
    {gate}
        model.eval()
        for batch in {evaluated}:
            total += model(batch).mean()
"""
PARTS = {
    "group": "torch.distributed.init_process_group('gloo')",
    "options": "shuffle=True",
    "gate": "if epoch:",
    "evaluated": "dev_loader",
}


def script(**parts: str) -> str:
    return SCRIPT.format(**{**PARTS, **parts})


# A sentence, and a script that comes close and is right.
NOOP: list[tuple[str, str]] = [
    ("one process", script(group="")),
    ("in order", script(options="shuffle=False")),
    ("in order by an attribute of the object's own", script(options="shuffle=self.shuffle")),
    ("settled already", script(
        options="shuffle=config['shuffle'] and not torch.distributed.is_initialized()")),
    ("in order by a sampler", script(options="sampler=SequentialSampler(data)")),
    ("a generator that may be seeded alike", script(options="shuffle=True, generator=g")),
    ("rank 0 evaluates alone", script(gate="if torch.distributed.get_rank() == 0:")),
    ("what ranks take is in order", script(
        options="sampler=RandomSampler(data) if not torch.distributed.is_initialized() "
        "else SequentialSampler(data)")),
    ("the loader of the training", script(options="shuffle=True", evaluated="loader")),
]  # fmt: skip

# A sentence, a script that is wrong, and the same one after `patch`.
FIX: list[tuple[str, str, str]] = [
    (
        "shuffled batches",
        script(options="shuffle=True, drop_last=True"),
        script(options="shuffle=not torch.distributed.is_initialized(), drop_last=True"),
    ),
    (
        "shuffled by a number",
        script(options="shuffle=1"),
        script(options="shuffle=not torch.distributed.is_initialized()"),
    ),
    (
        "shuffled where the settings say so",
        script(options="shuffle=config['shuffle']"),
        script(options="shuffle=config['shuffle'] and not torch.distributed.is_initialized()"),
    ),
    (
        "a sampler that draws",
        script(options="sampler=RandomSampler(data)"),
        script(
            options="sampler=RandomSampler(data) if not torch.distributed.is_initialized() "
            "else torch.utils.data.SequentialSampler(data)"
        ),
    ),
]


def test_both_tables_are_filled() -> None:
    assert NOOP, "write down a script that DF508 leaves alone"
    assert FIX, "write down a script that DF508 finds something in, and what patch makes of it"


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NOOP])
def test_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF508", text)] == []


@pytest.mark.parametrize(
    ("before", "after"), [pytest.param(before, after, id=name) for name, before, after in FIX]
)
def test_found_and_repaired(before: str, after: str) -> None:
    assert found("DF508", before)
    assert fixed("DF508", before) == textwrap.dedent(after).lstrip("\n")
    assert found("DF508", after) == []


@pytest.mark.parametrize(
    ("default", "alone"),
    [(-1, "args.local_rank == -1"), (0, "not torch.distributed.is_initialized()")],
)
def test_a_lone_process_keeps_its_order_whatever_its_rank_is_by_default(
    default: int, alone: str
) -> None:
    parse = (
        "import argparse\nparser = argparse.ArgumentParser()\n"
        f"parser.add_argument('--local_rank', type=int, default={default})\n"
        "args = parser.parse_args()\n"
    )
    assert f"shuffle={alone}" in fixed("DF508", parse + script())
