"""DF703: a loss whose quotient is scaled before it goes back has its share of the step."""

from __future__ import annotations

import pytest
from cases import fixed

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
