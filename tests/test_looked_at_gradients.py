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
def main(model, data, optimizer):
    torch.distributed.init_process_group("gloo")
    print(importance(model, data, optimizer))
    {above}
if __name__ == "__main__":
    main(*things())
"""


@pytest.mark.parametrize("place", ["", "here", "below", "above"])
def test_only_data_of_a_loop_that_never_steps_are_left_undealt(place: str) -> None:
    places = {**dict.fromkeys(("here", "below", "above"), "pass"), place: "optimizer.step()"}
    assert bool(found("DF401", SCRIPT.format(**places))) is bool(place)
