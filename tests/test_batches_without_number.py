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
