"""Steps with a loop in them: attacks of several passes, or the parts of a batch."""

from __future__ import annotations

import pytest
from cases import fixed, found, module
from ddpfix.patcher.analysis.training.program import Program

SCRIPT = """\
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def main(args, data, model, optimizer):
    torch.distributed.init_process_group("nccl")
    model = torch.nn.parallel.DistributedDataParallel(model)
    loader = DataLoader(data, sampler=DistributedSampler(data))
    taken = 0
    for epoch in range(3):
        for batch in {outer}:
            for part in {inner}:
                loss = model(part).mean()
                loss.backward()
                {within}
            {behind}
            if loss.item() > args.most:
                taken += 1
        {end}

if __name__ == "__main__":
    main(*things())
"""
STEP = "optimizer.step()"


def script(outer: str, inner: str, place: str = "behind") -> str:
    places = {**dict.fromkeys(("within", "behind", "end"), "pass"), place: STEP}
    return SCRIPT.format(outer=outer, inner=inner, **places)


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        (script("loader", "range(args.attacks)"), 2),
        (script("loader", "batch.split(4)"), 2),
        (script("loader", "depths:\n              for width in range(3)"), 2),
        (script("corpus.batches()", "range(0, len(batch), 4)"), 2),
        (script("loader", "range(args.attacks)", "within"), 3),
        (script("range(9)", "range(args.attacks)"), 3),  # steps or epochs
        (script("corpus.batches()", "batch"), 3),
        (script("range(9)", "loader"), 3),
        (script("loader", "range(9)", "end"), 3),  # one step an epoch
    ],
)
def test_the_loop_of_the_steps_is_the_one_over_the_batches(text: str, passes: int) -> None:
    (loop,) = Program(module(text)).train_loops
    depth = sum(" for " in f" {line.lstrip()}" for line in text.splitlines()[: loop.steps.lineno])
    assert depth == passes


def test_the_epoch_is_set_around_a_step_of_several_passes() -> None:
    text = fixed("DF402", script("loader", "range(args.attacks)"))
    assert "for epoch in range(3):\n        if isinstance(loader.sampler, Distr" in text


def test_a_counter_that_the_step_number_moves_is_no_ranks_own() -> None:
    text = script("loader", "range(args.attacks)")
    exits = "if step % 2 == 0:\n                taken += 1\n            if taken > 9:\n"
    text = text.replace("for batch in loader", "for step, batch in enumerate(loader)")
    text = text.replace("if loss.item() > args.most:\n                taken += 1\n", exits)
    text = text.replace("if taken > 9:\n", "if taken > 9:\n                break\n")
    assert not found("DF506", text)


ATTACKED = """\
def attack(model, batch):
    delta = torch.zeros_like(batch, requires_grad=True)
    for _ in range(3):
        loss(model(batch + delta)).backward()
        delta.data += delta.grad.sign()
        {within}
    return delta.detach()

for batch in DataLoader(data):
    loss(model(batch + attack(model, batch))).backward()
    {steps}
{after}
"""


@pytest.mark.parametrize(
    ("changed", "loops"),
    [
        ({}, 1),
        ({"within": "optimizer.step()"}, 2),
        ({"after": "for batch in others:\n    attack(model, batch)"}, 1),
        ({"after": "attack(model, example)"}, 2),
        ({"after": "pool.map(attack, others)"}, 2),
    ],
)
def test_an_attack_in_a_function_is_a_part_of_the_steps_that_call_it(
    changed: dict[str, str], loops: int
) -> None:
    parts = {"within": "", "steps": "optimizer.step()", "after": ""} | changed
    assert len(Program(module(ATTACKED.format(**parts))).train_loops) == loops


TURNS = """\
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def main(data, model, optimizer):
    torch.distributed.init_process_group("nccl")
    model = torch.nn.parallel.DistributedDataParallel(model)
    {above}
    for epoch in range(90):
        {first}
        for turn in range(3):
            for batch in loader:
                model(batch).mean().backward()
                optimizer.step()

main(*things())
"""
MADE = "loader = DataLoader(data, sampler=DistributedSampler(data))"


@pytest.mark.parametrize(
    ("above", "first", "number"),
    [
        (MADE, "pass", "loader.sampler.epoch + 1"),
        ("pass", MADE, "turn"),
    ],
)
def test_passes_of_an_epoch_have_orders_of_their_own(above: str, first: str, number: str) -> None:
    """The number of a turn comes again in each epoch, of a loader that serves all of them."""
    text = fixed("DF402", TURNS.format(above=above, first=first))
    assert f"loader.sampler.set_epoch({number})\n" in text
    assert not found("DF402", text)
