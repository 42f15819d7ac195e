"""DF703: accumulation over loaders whose batches cannot be counted, or are of any size."""

from __future__ import annotations

import pytest
from cases import fixed, found

SCRIPT = """
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

class Lines(IterableDataset):
    def __iter__(self):
        yield from open(path)

loader = DataLoader({data})
for epoch in range(3):
    for step, x in enumerate(loader):
        loss = model(x)
        loss = loss / args.accumulation
        loss.backward()
        if (step + 1) % args.accumulation == 0:
            optimizer.step()
            optimizer.zero_grad()
"""


def test_data_that_only_iterate_are_not_counted() -> None:
    """len(loader) raises TypeError, in one process too."""
    text = SCRIPT.format(data="Lines(), batch_size=4")
    (finding,) = found("DF703", text)
    assert "only iterates" in finding.because
    assert fixed("DF703", text) == text.lstrip("\n")


@pytest.mark.parametrize(
    ("data", "shares"),
    [
        ("data, batch_sampler=Grouped(data)", False),
        ("data, batch_sampler=BatchSampler(sampler, 4, False)", True),
        ("data, batch_size=4", True),
    ],
)
def test_only_torch_s_batches_have_the_attributes_of_a_share(data: str, shares: bool) -> None:
    text = fixed("DF703", SCRIPT.format(data=data))
    assert "if last_micro_step:" in text
    assert ("loss * loss_share(" in text) is shares


DRAWN = """\
import torch
from torch.utils.data import DataLoader

def train(args, model, optimizer, data):
    loader = DataLoader(data, batch_size=args.batch_size)
    batches = iter(loader)
    taken = 0
    for step in range({limit}):
        try:
            batch = next(batches)
        except StopIteration:
            batches = iter(loader)
            batch = next(batches)
        loss = model(batch).mean()
        loss = loss / args.accumulation
        loss.backward()
        taken += 1
        if {test}:
            optimizer.step()
            optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    "test", ["(step + 1) % args.accumulation == 0", "taken % args.accumulation == 0"]
)
@pytest.mark.parametrize("rebound", [False, True])
def test_steps_over_one_pass_after_another_know_no_last_batch(test: str, rebound: bool) -> None:
    text = DRAWN.format(limit="args.steps", test=test)
    if rebound:
        text = text.replace("batches = iter", "loader = iter").replace(
            "next(batches", "next(loader"
        )
    assert found("DF703", text) == []


def test_a_counter_that_is_one_off_is_put_right_there() -> None:
    text = DRAWN.format(limit="args.steps", test="(taken + 1) % args.accumulation == 0")
    assert fixed("DF703", text) == text.replace("(taken + 1)", "taken")


def test_batches_of_one_pass_have_a_last_one() -> None:
    text = DRAWN.format(limit="len(loader)", test="(step + 1) % args.accumulation == 0")
    assert "step + 1 == len(loader)" in fixed("DF703", text)
