"""DF702: the script's own steps_per_epoch is not taken for the number of steps of an epoch."""

from __future__ import annotations

import pytest
from cases import fixed

SCRIPT = """\
import torch
def train(args, model, data):
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    if args.max_steps > 0:
        t_total = args.max_steps
        {own}
    else:
        t_total = len(loader) // args.accumulation * args.epochs
        {own}
    scheduler = get_linear_schedule_with_warmup(optimizer, 0, t_total)
    for epoch in range(args.epochs):
        for step, batch in enumerate(loader):
            model(batch).backward()
            if (step + 1) % args.accumulation == 0:
                optimizer.step()
                scheduler.step()
"""


@pytest.mark.parametrize(
    ("own", "name"),
    [
        ("pass", "steps_per_epoch"),
        ("steps_per_epoch = t_total / args.epochs", "optimizer_steps_per_epoch"),
    ],
)
def test_the_number_of_steps_has_a_name_of_its_own(own: str, name: str) -> None:
    text = fixed("DF702", SCRIPT.format(own=own))
    assert f"    {name} = -(-len(loader) // args.accumulation)  # optimizer steps\n" in text
    assert f"        t_total = {name} * args.epochs\n        {own}\n" in text
    assert fixed("DF702", text) == text


OWN_NAME = """\
import torch
def train(args, model, data):
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    updates = {updates}
    shown = len(loader) // args.accumulation
    total = updates * args.epochs
    scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)
    for epoch in range(args.epochs):
        for step, batch in enumerate(loader):
            model(batch).backward()
            if (step + 1) % args.accumulation == 0:
                optimizer.step()
                scheduler.step()
"""


def test_a_horizon_is_made_of_all_steps_of_an_epoch() -> None:
    down, up = "len(loader) // args.accumulation", "-(-len(loader) // args.accumulation)"
    assert fixed("DF702", OWN_NAME.format(updates=down)) == OWN_NAME.format(updates=up)
    half = OWN_NAME.format(updates="len(loader) // 2")
    assert fixed("DF702", half) == half


@pytest.mark.parametrize(
    ("updates", "fixed_updates"),
    [
        ("len(loader) // 2", "-(-len(loader) // 2)"),
        ("math.ceil(len(loader) / 2)", "math.ceil(len(loader) / 2)"),
    ],
)
def test_a_number_that_is_written_out_divides_as_an_option_does(
    updates: str, fixed_updates: str
) -> None:
    written = OWN_NAME.replace("args.accumulation", "2")
    text = written.format(updates=updates).replace("    shown = len(loader) // 2\n", "")
    assert fixed("DF702", text) == text.replace(updates, fixed_updates)
