"""DF913: The iterator of a DataLoader is asked for a batch by a method that is gone."""

from __future__ import annotations

import pytest
from cases import fixed, found, module
from ddpfix.patcher.analysis.training.program import Program

SCRIPT = """
import torch
from torch.utils.data import DataLoader

loader = DataLoader(data, batch_size=8, shuffle=True)
for epoch in range(3):
    batches = {batches}
    for number in range(len(loader)):
        x, y = {batch}
        loss(model(x), y).backward()
        optimizer.step()
"""

# A sentence, and a script that comes close and is right.
NOOP = [
    ("the function next", {"batches": "iter(loader)", "batch": "next(batches)"}),
    ("a prefetcher of its own", {"batches": "Prefetcher(loader)", "batch": "batches.next()"}),
    ("iterators of another kind", {"batches": "iter(reader)", "batch": "batches.next()"}),
    ("the method of today", {"batches": "iter(loader)", "batch": "batches.__next__()"}),
]

# A sentence, what is asked for a batch, and that after `patch`.
FIX = [
    ("a name", "batches.next()", "next(batches)"),
    ("an iterator made on the spot", "iter(loader).next()", "next(iter(loader))"),
    ("a part of the batch", "batches.next()[:2]", "next(batches)[:2]"),
]


@pytest.mark.parametrize("parts", [pytest.param(parts, id=name) for name, parts in NOOP])
def test_left_alone(parts: dict[str, str]) -> None:
    assert found("DF913", SCRIPT.format(**parts)) == []


@pytest.mark.parametrize(
    ("before", "after"), [pytest.param(before, after, id=name) for name, before, after in FIX]
)
def test_found_and_repaired(before: str, after: str) -> None:
    text = SCRIPT.format(batches="iter(loader)", batch=before)
    assert found("DF913", text)
    repaired = fixed("DF913", text)
    assert repaired == SCRIPT.format(batches="iter(loader)", batch=after).lstrip("\n")
    assert found("DF913", repaired) == []


ANEW = """
import torch
from torch.utils.data import DataLoader

loader = DataLoader(data, batch_size=8, shuffle=True)
for step in range(300):
    try:
        x, y = {batch}
    except Exception:
        batches = {again}
        x, y = {batch}
    loss(model(x), y).backward()
    optimizer.step()
"""


def test_an_iterator_that_begins_where_it_is_missing_is_asked_alike() -> None:
    text = ANEW.format(batch="batches.next()", again="iter(loader)")
    repaired = fixed("DF913", text)
    assert repaired == ANEW.format(batch="next(batches)", again="iter(loader)").lstrip("\n")
    kind = ANEW.format(batch="batches.next()", again="Prefetcher(loader)")
    assert found("DF913", kind) == []


@pytest.mark.parametrize("batch", ["next(batches)", "batches.next()", "batches.__next__()"])
def test_the_loader_of_such_a_loop_is_known(batch: str) -> None:
    program = Program(module(SCRIPT.format(batches="iter(loader)", batch=batch)))
    assert [loop.loader and loop.loader.name for loop in program.train_loops] == ["loader"]
