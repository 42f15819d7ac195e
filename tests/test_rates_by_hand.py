"""DF702: horizons of learning rates that a script computes itself, in a function or in its loop."""

from __future__ import annotations

import pytest
from cases import fixed, found

SCRIPT = """
import math
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

torch.distributed.init_process_group("gloo")
BATCH = 8
loader = DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{horizon}
{schedule}
step = 0
for epoch in range(3):
    for batch in loader:
        {rate}
        model(batch).mean().backward()
        optimizer.step()
        step += 1
"""
BY_FUNCTION = """
def decay(step):
    return 1 - step / total

schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, decay)
"""
BY_LAMBDA = "schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / total)"
IN_OPTIMIZER = "optimizer = BertAdam(model.parameters(), t_total=(int(len(data) / BATCH) + 1) * 3)"
IN_LOOP = "for group in optimizer.param_groups:\n            group['lr'] = 0.1 * (1 - step / total)"
THROUGH_A_NAME = "rate = 1 - step / total\n        optimizer.param_groups[0]['lr'] = rate"


def script(
    schedule: str = "", rate: str = "pass", horizon: str = "total = len(data) // BATCH * 3"
) -> str:
    return SCRIPT.format(schedule=schedule, rate=rate, horizon=horizon)


@pytest.mark.parametrize(
    "text",
    [
        script(BY_FUNCTION),
        script(BY_LAMBDA),
        script(rate=IN_LOOP),
        script(rate=THROUGH_A_NAME),
    ],
    ids=["a function", "a lambda", "in the loop", "through a name"],
)
def test_a_horizon_of_all_examples_is_divided_by_the_ranks(text: str) -> None:
    after = fixed("DF702", text)
    assert "total = len(data) // (BATCH * world_size) * 3" in after
    assert found("DF702", after) == []


def test_so_is_one_that_is_rounded_up() -> None:
    horizon = "total = 3 * math.ceil(len(data) / BATCH)"
    assert "len(data) / (BATCH * world_size)" in fixed(
        "DF702", script(rate=IN_LOOP, horizon=horizon)
    )


def test_so_is_one_that_an_optimizer_gets() -> None:
    after = fixed("DF702", script(IN_OPTIMIZER))
    assert "t_total=(int(len(data) / (BATCH * world_size)) + 1) * 3)" in after
    assert found("DF702", after) == []


def test_so_are_the_steps_before_a_run_is_resumed() -> None:
    resumed = "step = int(len(data) / BATCH * first)"
    text = script(rate=IN_LOOP).replace("step = 0", resumed)
    again = text[text.index("\nstep = int") :]  # another training of the same names
    after = text + again
    for _ in range(3):
        after = fixed("DF702", after)
    assert (
        after.count("step = int(len(data) / (BATCH * world_size) * first)")
        + after.count("step = int(len(data) / (BATCH * (torch.distributed.get_world_size()")
        == 2
    )
    assert found("DF702", after) == []


@pytest.mark.parametrize(
    ("horizon", "after"),
    [
        ("(len(data) + BATCH - 1) // BATCH", "(len(data) + {0} - 1) // {0}"),
        ("(len(data) - 1) // BATCH + 1", "(len(data) - 1) // {0} + 1"),
        ("-(-len(data) // BATCH)", "-(-len(data) // {0})"),
        (
            "len(data) // BATCH + (1 if len(data) % BATCH else 0)",
            "len(data) // {0} + (1 if len(data) % {0} else 0)",
        ),
        (
            "len(data) // BATCH + int(len(data) % BATCH != 0)",
            "len(data) // {0} + int(len(data) % {0} != 0)",
        ),
    ],
)
def test_every_size_of_a_number_that_is_rounded_up_is_that_of_all_ranks(
    horizon: str, after: str
) -> None:
    text = script(rate=IN_LOOP, horizon=f"total = {horizon}")
    assert f"total = {after}".format("(BATCH * world_size)") in fixed("DF702", text)


@pytest.mark.parametrize(
    ("horizon", "after"),
    [
        ("len(loader.dataset) // BATCH", "len(loader.dataset) // (BATCH * world_size)"),
        (
            "int(len(loader.dataset) / loader.batch_size)",
            "int(len(loader.dataset) / (loader.batch_size * world_size))",
        ),
    ],
)
def test_a_loader_tells_of_its_data_and_batch(horizon: str, after: str) -> None:
    assert f"total = {after}" in fixed("DF702", script(BY_LAMBDA, horizon=f"total = {horizon}"))


def test_the_number_of_examples_may_have_a_name() -> None:
    text = script(rate=IN_LOOP, horizon="n = len(data)\ntotal = n // BATCH * 3")
    assert "total = n // (BATCH * world_size) * 3" in fixed("DF702", text)


BY_CLASS = """
class Poly:
    def __init__(self, optimizer, total):
        self.optimizer, self.total = optimizer, total

    def __call__(self, step):
        for group in self.optimizer.param_groups:
            group["lr"] = 0.1 * (1 - step / self.total)

rate = Poly(optimizer, 3 * {number})
"""


def test_a_class_of_the_script_that_sets_the_rate_is_a_schedule() -> None:
    after = fixed("DF702", script(BY_CLASS.format(number="math.ceil(len(data) / BATCH)")))
    assert "rate = Poly(optimizer, 3 * math.ceil(len(data) / (BATCH * world_size)))" in after
    total = script(BY_CLASS.format(number="total"))
    assert "total = len(data) // (BATCH * world_size) * 3" in fixed("DF702", total)


DRAWN = """
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

torch.distributed.init_process_group("gloo")
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
number = len(data) // 8
for epoch in range(3):
    batches = iter(loader)
    for step in range({number}):
        batch = next(batches)
        model(batch).mean().backward()
        optimizer.step()
"""


def test_steps_that_take_a_batch_each_are_as_many_as_a_rank_has_batches() -> None:
    after = fixed("DF702", DRAWN.format(number="number"))
    assert "number = len(data) // (8 * world_size)" in after
    assert found("DF702", after) == []
    after = fixed("DF702", DRAWN.format(number="len(data) // 8"))
    assert "range(len(data) // (8 * world_size)):" in after
    assert found("DF702", DRAWN.format(number="len(loader)")) == []


@pytest.mark.parametrize(
    "text",
    [
        script(),
        script(rate="print(step / total)"),
        script(BY_FUNCTION, horizon="total = len(loader) * 3"),
    ],
    ids=["nobody asks", "it is printed", "a rank's own length"],
)
def test_other_numbers_stay(text: str) -> None:
    assert found("DF702", text) == []
