"""DF401: gradients that a program only looks at are of all examples on each rank."""

from __future__ import annotations

import pytest
from cases import found

SCRIPT = """\
import torch
from torch.utils.data import DataLoader
def importance(model, data, optimizer):
    total = 0
    for batch in DataLoader(data):
        model(batch).mean().backward()
        total += look(model)
    {here}
    return total
def look(model):
    {below}
    return model.weight.grad.abs()
def train(model, loader, optimizer):
    for batch in loader:
        model(batch).mean().backward()
        {train}
def main(model, data, optimizer):
    torch.distributed.init_process_group("gloo")
    train(model, dealt(data), optimizer)
    print(importance(model, data, optimizer))
    {above}
if __name__ == "__main__":
    main(*things())
"""


SAMPLED = "it has no sampler"


def reasons(**places: str) -> list[str]:
    parts = dict.fromkeys(("here", "below", "above", "train"), "pass")
    text = SCRIPT.format(**{**parts, "train": "optimizer.step()", **places})
    return [each.because for each in found("DF401", text)]


def test_data_of_a_loop_that_never_steps_are_left_undealt() -> None:
    assert SAMPLED not in reasons()


@pytest.mark.parametrize("place", ["here", "below", "above"])
def test_data_of_a_loop_that_may_step_are_dealt(place: str) -> None:
    assert SAMPLED in reasons(**{place: "optimizer.step()"})


def test_what_is_not_seen_to_step_anywhere_may_step_unseen() -> None:
    assert SAMPLED in reasons(train="update(model)")


FISHER = """\
import torch
from torch.utils.data import DataLoader
def importance(model, data):
    total = dict.fromkeys(names(model), 0)
    for batch in DataLoader(data):
        {first}
        model(batch).mean().backward()
        for name, p in model.named_parameters():
            total[name] += p.grad.data ** 2 / len(data)
        {last}
    return total
def train(model, loader, old, optimizer):
    penalty = importance(model, old)
    for batch in loader:
        (model(batch).mean() + distance(model, penalty)).backward()
        optimizer.step()
def main(model, data, old, optimizer):
    torch.distributed.init_process_group("gloo")
    train(model, dealt(data), old, optimizer)
if __name__ == "__main__":
    main(*things())
"""


@pytest.mark.parametrize(
    ("first", "last", "is_dealt"),
    [
        ("model.zero_grad()", "pass", False),
        ("pass", "pass", True),
        ("model.zero_grad()", "clip_and_step(model)\n        optimizer.step()", True),
    ],
)
def test_data_are_left_undealt_of_which_each_batch_is_weighed(
    first: str, last: str, is_dealt: bool
) -> None:
    text = FISHER.format(first=first, last=last)
    assert (SAMPLED in [each.because for each in found("DF401", text)]) is is_dealt
