"""DF801: a loss scale outlives an epoch, as apex's does."""

from __future__ import annotations

import pytest
from cases import fixed

SCRIPT = """
import torch
from torch.utils.data import DataLoader
if args.fp16:
    from apex import amp

def train(model, optimizer, loader):
    for x, y in loader:
        output = model(x)
        loss = criterion(output, y)
        if args.fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()

def main(model, optimizer, data):
    if args.fp16:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    loader = DataLoader(data)
    {call}

main(net(), sgd(), read())
"""


@pytest.mark.parametrize(
    ("call", "is_replaced"),
    [
        ("train(model, optimizer, loader)", True),
        ("for epoch in range(3):\n        train(model, optimizer, loader)", False),
    ],
)
def test_a_scaler_is_made_once_for_all_epochs(call: str, is_replaced: bool) -> None:
    text = SCRIPT.format(call=call)
    assert ("GradScaler(" in fixed("DF801", text)) is is_replaced
