"""DF702: horizons in the function that calls a training function."""

from __future__ import annotations

import pytest
from cases import fixed, found

SCRIPT = """\
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def train_epoch({parameters}):
    for i, batch in enumerate(batches):
        (model(batch).mean() / {accumulation}).backward()
        if (i + 1) % {accumulation} == 0 or i + 1 == len(batches):
            optimizer.step()
            optimizer.zero_grad()
            {scheduled}
        {each}

def main(args, data, model, optimizer):
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
    total = {total}
    scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)
    for epoch in range(args.epochs):
        loader.sampler.set_epoch(epoch)
        train_epoch({arguments})
{more}
"""
ALL = "model, batches, optimizer, scheduler"
PASSED = "model, loader, optimizer, scheduler"
STEP = "scheduler.step()"


def script(
    total: str = "len(loader) * args.epochs",
    accumulation: str = "args.accumulation",
    parameters: str = f"{ALL}, args",
    arguments: str = f"{PASSED}, args",
    scheduled: str = STEP,
    each: str = "pass",
    more: str = "",
) -> str:
    return SCRIPT.format(
        total=total,
        accumulation=accumulation,
        parameters=parameters,
        arguments=arguments,
        scheduled=scheduled,
        each=each,
        more=more,
    )


OTHER_NAME = {
    "accumulation": "every",
    "parameters": f"{ALL}, every=1",
    "arguments": f"{PASSED}, every=args.accumulation",
}
TOTALS = [
    "len(loader) * args.epochs",
    "len(loader) // args.accumulation * args.epochs",
    "int(len(loader) / args.accumulation) * args.epochs",
]


@pytest.mark.parametrize("total", TOTALS)
@pytest.mark.parametrize("names", [{}, OTHER_NAME], ids=["options", "an argument"])
def test_a_horizon_of_the_caller_counts_optimizer_steps(total: str, names: dict[str, str]) -> None:
    new = fixed("DF702", script(total, **names))
    steps = "steps_per_epoch = -(-len(loader) // args.accumulation)  # optimizer steps"
    assert f"    {steps}\n    total = steps_per_epoch * args.epochs\n" in new
    assert found("DF702", new) == []


NOOP = {
    "steps with each micro-batch": {"scheduled": "pass", "each": STEP},
    "steps with each epoch": {"scheduled": "pass"},
    "steps of an epoch, rounded up": {"total": "-(-len(loader) // args.accumulation) * 3"},
    "another number of steps": {"total": "args.max_steps"},
    "several callers": {"more": "def debug(args):\n    train_epoch(1, 2, 3, 4, args)"},
    "a number that the caller has no name for": {
        "accumulation": "every", "parameters": f"{ALL}, every", "arguments": f"{PASSED}, 4 // n",
    },
    "another object": {"arguments": f"{PASSED}, args=options"},
}  # fmt: skip


@pytest.mark.parametrize("parts", NOOP.values(), ids=NOOP)
def test_a_horizon_of_the_caller_is_left_alone(parts: dict[str, str]) -> None:
    assert found("DF702", script(**parts)) == []


INSIDE = """\
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

class Trainer:
    def __init__(self, model, loader, optimizer, scheduler, args):
        self.model, self.loader, self.args = model, loader, args
        self.optimizer, self.scheduler = optimizer, scheduler
    def train(self):
        for epoch in range(self.args.epochs):
            for i, batch in enumerate(self.loader):
                (self.model(batch).mean() / self.args.accumulation).backward()
                if (i + 1) % self.args.accumulation == 0 or i + 1 == len(self.loader):
                    self.optimizer.step()
                    self.optimizer.zero_grad()
                    self.scheduler.step()

def main(args, data, model, optimizer):
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
    total = {total}
    scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)
    Trainer(model, loader, optimizer, scheduler, args).train()
"""


@pytest.mark.parametrize("total", TOTALS[1:])
def test_so_does_that_of_a_caller_whose_trainer_counts_the_epochs(total: str) -> None:
    new = fixed("DF702", INSIDE.format(total=total))
    assert "    total = steps_per_epoch * args.epochs\n" in new
    assert found("DF702", new) == []


def test_a_caller_without_a_name_for_the_accumulation_is_left_to_the_audit() -> None:
    assert found("DF702", INSIDE.format(total=TOTALS[0])) == []


def test_another_method_of_the_trainer_is_told_of_once() -> None:
    text = INSIDE.format(total="args.steps")
    made = "        self.optimizer, self.scheduler = optimizer, scheduler\n"
    text = text.replace(
        made,
        """\
        total = len(loader) * args.epochs
        self.optimizer = optimizer
        self.scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)
        self.train()
""",
    ).replace(", args).train()", ", args)")
    assert len(found("DF702", text)) == 1
