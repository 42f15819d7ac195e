"""DF401 and DF402 for steps that take batches of several loaders."""

from __future__ import annotations

import pytest
from cases import fixed, found

SCRIPT = """
import torch
from torch.utils.data import DataLoader, DistributedSampler
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
first = DataLoader(torch.rand(8, 4), shuffle=True)
second = DataLoader(torch.rand(80, 4), shuffle=True)
others = iter(second)
for epoch in range(3):
    for {target} in {source}:
        {other}
        model(x).sum().backward()
        optimizer.step()
"""
AGAIN = """try:
            y = next(others)
        except StopIteration:
            others = iter(second)
            y = next(others)"""
LOOK = """if epoch > 1:
            y = next(others)"""
SHOW = """with torch.no_grad():
            y = next(others)"""


def script(target: str = "x", source: str = "first", other: str = "y = next(others)") -> str:
    return SCRIPT.format(target=target, source=source, other=other)


@pytest.mark.parametrize(
    ("text", "dealt"),
    [
        (script(), 2),
        (script(other="y = others.next()"), 2),
        (script(other=AGAIN), 2),
        (script("x, y", "zip(first, second)", "pass"), 2),
        (script("i, (x, y)", "enumerate(zip(first, second))", "pass"), 2),
        (script("i", "range(9)", "x = next(iter(first))\n        y = next(others)"), 2),
        (script(other=LOOK), 1),
        (script(other=SHOW), 1),
        (script(other="y = next(iter(first))"), 1),
    ],
)
def test_each_loader_that_every_step_takes_from_is_dealt(text: str, dealt: int) -> None:
    after = fixed("DF401", text)
    assert after.count("else DistributedSampler(") == dealt
    after = fixed("DF402", after)
    assert after.count(".set_epoch(epoch)") == dealt


KIND = """
import torch
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler
{group}
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
kind = RandomSampler if args.local_rank == -1 else {kind}
loader = DataLoader(data, sampler=kind(data))
for epoch in range(3):
    {set_epoch}
    for x in loader:
        model(x).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("kind", "set_epoch", "codes"),
    [
        ("DistributedSampler", "loader.sampler.set_epoch(epoch)", []),
        ("DistributedSampler", "pass", ["DF402"]),
        ("SequentialSampler", "pass", ["DF401"]),
    ],
)
def test_the_kind_of_sampler_may_be_chosen_first(
    kind: str, set_epoch: str, codes: list[str]
) -> None:
    text = KIND.format(
        group="torch.distributed.init_process_group('gloo')", kind=kind, set_epoch=set_epoch
    )
    assert [code for code in ("DF401", "DF402") if found(code, text)] == codes
    if codes == ["DF402"]:
        assert "if isinstance(loader.sampler, DistributedSampler):" in fixed("DF402", text)
