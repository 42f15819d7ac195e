"""DF301: a function that wraps its model is not handed the wrapper again, by a loop over files."""

from __future__ import annotations

import pytest
from cases import fixed

SCRIPT = """\
import torch
def put(model, cards, path=None):
    if path:
        model.load_state_dict(torch.load(path))
    if {test}:
        model = torch.nn.DataParallel(model)
    return model, "cuda"
def train(model, args):
    model, device = put(model, args.cards)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for batch in torch.utils.data.DataLoader(args.data):
        model(batch).mean().backward()
        optimizer.step()
def main(args):
    torch.distributed.init_process_group("gloo")
    model = torch.nn.Linear(2, 2)
    train(model, args)
    for path in args.paths:
        {scored}
main(parse())
"""
CARDS = "len(cards) > 1 and not torch.distributed.is_initialized()"
AGAIN = "model, device = put(model, args.cards[0], path)"


@pytest.mark.parametrize(
    ("test", "scored", "by_hand"),
    [
        (CARDS, AGAIN, True),
        (f"{CARDS} and not hasattr(model, 'module')", AGAIN, False),
        (CARDS, f"model = torch.nn.Linear(2, 2)\n        {AGAIN}", False),
        (CARDS, AGAIN.replace("model, device", "scored, device"), False),
        (CARDS, "pass", False),
    ],
)
def test_what_a_loop_would_wrap_twice_is_averaged_by_hand(
    test: str, scored: str, by_hand: bool
) -> None:
    text = fixed("DF301", SCRIPT.format(test=test, scored=scored))
    assert ("average_gradients(optimizer)\n" in text) is by_hand
    assert ("DistributedDataParallel" in text) is not by_hand
