"""DF707: A part of the loader's length divides, and may be no batch at all on a rank."""

from __future__ import annotations

import pytest
from cases import fixed, found

SCRIPT = """\
import math
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
torch.distributed.init_process_group("gloo")
world_size = torch.distributed.get_world_size()


def train(args, data, valid_loader):
    loader = DataLoader(data, batch_size=2, sampler={sampler}(data))
    {before}
    for step, batch in enumerate(loader):
        model(batch).mean().backward()
        optimizer.step()
        {inside}
"""


def script(inside: str = "pass", before: str = "pass", sampler: str = "DistributedSampler") -> str:
    return SCRIPT.format(inside=inside, before=before, sampler=sampler)


PRINT = "if step % {}:\n            print(step)"
FIX = {
    "an interval": (
        script(PRINT.format("(len(loader) // 10)")),
        script(PRINT.format("max(1, len(loader) // 10)")),
    ),
    "an interval that stands in a line of its own": (
        script(PRINT.format("(\n            len(loader) // 10\n        )")),
        script(PRINT.format("(\n            max(1, len(loader) // 10)\n        )")),
    ),
    "an interval with a name": (
        script(PRINT.format("every"), "every = len(loader) // args.often"),
        script(PRINT.format("every"), "every = max(1, len(loader) // args.often)"),
    ),
    "an interval in the arguments": (
        script(PRINT.format("args.every"), "args.every = int(len(loader) * 0.1)"),
        script(PRINT.format("args.every"), "args.every = max(1, int(len(loader) * 0.1))"),
    ),
    "an interval of optimizer steps, which are rounded up": (
        script(
            PRINT.format("args.every"),
            "steps = -(-len(loader) // args.accumulation)\n    args.every = steps // 10",
        ),
        script(
            PRINT.format("args.every"),
            "steps = -(-len(loader) // args.accumulation)\n    args.every = max(1, steps // 10)",
        ),
    ),
    "a rounded quotient": (
        script(PRINT.format("every"), "every = math.floor(len(loader) / 10)"),
        script(PRINT.format("every"), "every = max(1, math.floor(len(loader) / 10))"),
    ),
    "epochs of a number of steps": (
        script(before="epochs = args.max_steps // (len(loader) // args.accumulation) + 1"),
        script(before="epochs = args.max_steps // max(1, len(loader) // args.accumulation) + 1"),
    ),
    "examples by all ranks": (
        script(PRINT.format("every"), "every = len(data) // (2 * world_size) // 5"),
        script(PRINT.format("every"), "every = max(1, len(data) // (2 * world_size) // 5)"),
    ),
}


@pytest.mark.parametrize(("before", "after"), FIX.values(), ids=FIX)
def test_at_least_one_batch(before: str, after: str) -> None:
    assert fixed("DF707", before) == after
    assert not found("DF707", after)


NOOP = {
    "not dealt": script(PRINT.format("(len(loader) // 10)"), sampler="RandomSampler"),
    "of all examples": script(PRINT.format("(len(data) // 10)")),
    "of another loader": script(PRINT.format("(len(valid_loader) // 10)")),
    "by one": script(PRINT.format("(len(loader) // 1)")),
    "rounded up": script(PRINT.format("(-(-len(loader) // 10))")),
    "a name that is rounded up": script(
        PRINT.format("steps"), "steps = -(-len(loader) // args.accumulation)"
    ),
    "and one more": script(PRINT.format("(len(loader) // 10 + 1)")),
    "no divisor": script(before="warm_up = len(loader) // 10"),
    "in a comparison": script("if step > len(loader) // 10:\n            break"),
    "asked first": script(
        "if every and step % every:\n            print(step)", "every = len(loader) // 10"
    ),
    "asked whether it is 0": script(
        "if every > 0 and step % every:\n            print(step)", "every = len(loader) // 10"
    ),
    "one at least": script(PRINT.format("max(every, 1)"), "every = len(loader) // 10"),
    "a quotient": script(before="share = 1 / (len(loader) / 10)"),
    "of another function": script(before="every = len(loader) // 10")
    + "\n\ndef other(every):\n    return 5 % every\n",
}


@pytest.mark.parametrize("text", NOOP.values(), ids=NOOP)
def test_nothing_is_found(text: str) -> None:
    assert not found("DF707", text)
