"""DF310: a sum that the script divides by the sum of a mask is weighed like a cross entropy."""

from __future__ import annotations

import pytest
from cases import fixed, found

SCRIPT = """\
import torch
def masked(losses, labels):
    {mask}
    {mean}
    {result}
model = torch.nn.parallel.DistributedDataParallel(net)
for batch in loader:
    losses = model(batch)
    {call}
    loss.backward()
"""
PARTS = {
    "mask": "mask = labels.ne(0)",
    "mean": "loss = losses.sum() / mask.sum().float()",
    "result": "return loss",
    "call": "loss = masked(losses, batch)",
}
WEIGHED = "loss = weighed_by_tokens(loss, mask.sum())"


def script(**parts: str) -> str:
    return SCRIPT.format(**{**PARTS, **parts})


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"mask": "mask = (labels > 0) & labels.ne(3)"},
        {"mean": "loss = torch.sum(losses * mask) / (mask.sum())", "result": "return loss, mask"},
    ],
)
def test_it_is_weighed_by_the_sum_of_the_mask(parts: dict[str, str]) -> None:
    text = fixed("DF310", script(**parts))
    mean = {**PARTS, **parts}["mean"]
    assert f"    {mean}\n    {WEIGHED}\n" in text
    assert found("DF310", text) == []


@pytest.mark.parametrize(
    "parts",
    [
        {"mask": "mask = torch.sigmoid(labels)"},  # a gradient may come through it
        {"mean": "loss = losses.sum(1) / mask.sum(1)"},
        {"result": "return losses, loss"},  # a score, as far as is known
    ],
)
def test_another_quotient_is_left_alone(parts: dict[str, str]) -> None:
    assert found("DF310", script(**parts)) == []


@pytest.mark.parametrize(
    "call",
    [
        "if batch.any():\n        loss = masked(losses, batch)",
        "loss = choose(masked)(losses, batch) + masked(losses, batch)",
    ],
)
def test_what_ranks_may_not_all_call_is_reported(call: str) -> None:
    (finding,) = found("DF310", script(call=call))
    assert not finding.edits
