"""Batches without a DataLoader that a loop hands to a function which goes back and steps."""

from __future__ import annotations

import pytest
from cases import found

SCRIPT = """
import torch
from torch.nn.functional import mse_loss
x, y = torch.randn(32, 4), torch.randn(32, 1)
size = 8

class Trainer:
    def __init__(self):
        self.model = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.kept = 0

    def take(self, inputs, labels):
        self.inputs, self.labels = inputs, labels

    def step(self, inputs, labels):
        {before}
        loss = mse_loss(self.model({inputs}), labels){more}
        self.optimizer.zero_grad()
        loss.backward()
        {between}
        self.optimizer.step()
        {behind}
        return loss.item()

trainer = Trainer()
for epoch in range(3):
    total = 0
    for i in range(0, len(x), size):
        {call}
    {end}
"""
PARTS = {
    "before": "pass",
    "inputs": "inputs",
    "more": "",
    "between": "pass",
    "behind": "pass",
    "call": "trainer.step(x[i : i + size], y[i : i + size])",
    "end": "pass",
}
SHARED = {
    "slices": {},
    "a sum that is printed": {"call": f"total += {PARTS['call']}", "end": "print(total)"},
    "sums in the object": {"behind": "self.kept += loss.item()"},
    "a loss that the object has": {"behind": "self.loss = loss"},
    "clipped gradients": {"between": "torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1)"},
    "a rate by the epoch": {"end": "trainer.optimizer.param_groups[0]['lr'] = 0.1 / (1 + epoch)"},
}
REFUSED = {
    "what it keeps for the next": (
        {"more": " + self.kept", "behind": "self.kept = loss.item()"}, "a step keeps self.kept"
    ),
    "an element that it keeps": (
        {"more": " + self.kept[0]", "behind": "self.kept[0] = loss.item()"}, "keeps self.kept"
    ),
    "what another method keeps": (
        {"before": "self.take(inputs, labels)", "inputs": "self.inputs"}, "keeps self.inputs"
    ),
    "what it returns for the next": (
        {"call": "total = trainer.step(x[i : i + size] + total, y[i : i + size])"},
        "goes on with the total of the batch before",
    ),
    "a step that one rank leaves out": (
        {"before": "if inputs.sum() > 9: return 0"}, "which hangs on the test in line"
    ),
    "noise": ({"before": "inputs = inputs + torch.randn_like(inputs)"}, "draws at random"),
    "a rate by the loss": (
        {"between": "self.optimizer.param_groups[0]['lr'] = 0.1 * loss.item()"},
        "sets a rate by the batch of one rank",
    ),
    "all examples": ({"call": "trainer.step(x, y)"}, "trains on no part"),
    "the number of the batch": (
        {"call": "trainer.step(x[i : i + size] * i, y[i : i + size])"}, "hangs on i"
    ),
    "a decision by the sum": (
        {"call": f"total += {PARTS['call']}", "end": "if total < 1: break"}, "decide by its own"
    ),
}  # fmt: skip


def because(parts: dict[str, str]) -> str:
    (finding, *_) = found("DF204", SCRIPT.format(**{**PARTS, **parts}))
    return "" if finding.edits else finding.because


RUNNING = """
class Count(torch.nn.Module):
    def forward(self, x):
        self.seen = self.seen + x.sum()
        return x * self.seen
    def clear(self):
        self.seen = 0
    def close(self):
        pass
count = Count()
trainer = Trainer()
for i in range(0, len(x), size):
    count.{call}()
    trainer.step(count(x[i : i + size]), y[i : i + size])
"""


@pytest.mark.parametrize(("call", "is_shared"), [("clear", True), ("close", False)])
def test_what_a_step_has_cleared_leads_to_no_other(call: str, is_shared: bool) -> None:
    head = SCRIPT.partition("\ntrainer = Trainer()")[0].format(**PARTS)
    (finding, *_) = found("DF204", head + RUNNING.format(call=call))
    assert ("keeps self.seen" not in finding.because) is is_shared


@pytest.mark.parametrize("parts", SHARED.values(), ids=SHARED)
def test_ranks_take_turns(parts: dict[str, str]) -> None:
    assert because(parts) == ""


@pytest.mark.parametrize(("parts", "why"), REFUSED.values(), ids=REFUSED)
def test_ranks_take_none_where_steps_follow_each_other(parts: dict[str, str], why: str) -> None:
    assert why in because(parts)


LOADED = """
import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for step, batch in enumerate(DataLoader(data)):
        optimizer.zero_grad()
        loss = model(batch).mean()
        loss.backward()
        model.seen += batch.size(0)
        for group in optimizer.param_groups:
            group["lr"] = {rate}
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("rate", "is_shared"),
    [
        ("0.1 * loss.item()", False),
        ("0.1 / (1 + step)", True),
        ("0.1 * 0.9**epoch", True),
        ("model.settings['rate']", True),
    ],
)
def test_a_rate_by_the_loss_of_a_rank_is_told(rate: str, is_shared: bool) -> None:
    (finding, *_) = found("DF204", LOADED.format(rate=rate))
    assert bool(finding.edits) is is_shared
    assert is_shared or "sets a rate by the batch of one rank" in finding.because
