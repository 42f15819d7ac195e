"""DF703: a loss whose quotient is scaled before it goes back has its share of the step."""

from __future__ import annotations

import pytest
from cases import fixed, found
from ddpfix.patcher.findings import Severity

SCRIPT = """\
import torch
from apex import amp
loader = torch.utils.data.DataLoader(data, batch_size=4)
for step, batch in enumerate(loader):
    outputs = model(batch)
    loss = outputs[0] / args.accumulation
    {back}
    if (step + 1) % args.accumulation == 0:
        optimizer.step()
"""
BACK = [
    "loss.backward()",
    "scaler.scale(loss).backward()",
    "with amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()",
]


@pytest.mark.parametrize("back", BACK)
def test_the_quotient_is_the_share(back: str) -> None:
    text = fixed("DF703", fixed("DF703", SCRIPT.format(back=back)))
    assert "    loss = outputs[0] * loss_share(step, loader, args.accumulation)\n" in text


def test_another_quotient_stays() -> None:
    text = SCRIPT.format(back="scaler.scale(other).backward()")
    assert "    loss = outputs[0] / args.accumulation\n" in fixed("DF703", fixed("DF703", text))


def test_what_is_added_to_the_loss_has_its_share_too() -> None:
    added = "loss += 2 * other / args.accumulation\n    total += other / args.accumulation"
    text = fixed("DF703", fixed("DF703", SCRIPT.format(back=f"{added}\n    loss.backward()")))
    assert "    loss += (2 * other) * loss_share(step, loader, args.accumulation)\n" in text
    assert "    total += other / args.accumulation\n" in text


TEST = "if (step + 1) % args.accumulation == 0:"
COUNTED = "if {} % args.accumulation == 0 or step == len(loader) - 1:"


@pytest.mark.parametrize(
    ("count", "counter", "shares"),
    [
        ("global_step += 1", "global_step", False),
        ("number = step + 1", "number", True),
        ("pass", "(step + 1)", True),
    ],
)
def test_a_count_over_epochs_tells_no_share(count: str, counter: str, shares: bool) -> None:
    text = SCRIPT.format(back=f"loss.backward()\n    {count}")
    text = text.replace(TEST, COUNTED.format(counter))
    assert ("loss_share(step" in fixed("DF703", text)) is shares
    assert found("DF703", text)


UNDIVIDED = """\
import torch
def small(loss, n):
    {below}
    return loss
loader = torch.utils.data.DataLoader(data, batch_size=4)
for step, batch in enumerate(loader):
    loss = {loss}
    loss.backward()
    if (step + 1) % {number} == 0:
        {before}
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("parts", "is_told"),
    [
        ({}, True),
        ({"number": "4"}, False),  # it stays, whatever the number of ranks
        ({"loss": "model(batch) / args.accumulation"}, False),
        ({"loss": "small(model(batch), args.accumulation)"}, False),
        ({"loss": "small(model(batch), 2)", "below": "loss = loss / args.accumulation"}, False),
        ({"before": "each.grad /= args.accumulation"}, False),
        ({"before": "print(int(args.accumulation))"}, True),
    ],
)
def test_gradients_that_add_up_grow_with_the_number_of_micro_batches(
    parts: dict[str, str], is_told: bool
) -> None:
    plain = {"below": "pass", "loss": "model(batch)", "number": "args.accumulation"}
    text = UNDIVIDED.format(**{"before": "pass", **plain, **parts})
    told = [each for each in found("DF703", text) if each.because.startswith("no loss")]
    assert [each.severity for each in told] == ([Severity.NOTE] if is_told else [])
