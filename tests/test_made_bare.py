"""DF301: a function trains a model that it makes, which has the name of a wrapped one elsewhere."""

from __future__ import annotations

import pytest
from cases import found

SCRIPT = """\
import torch
from torch.utils.data import DataLoader, DistributedSampler

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x)

def fold(loader):
    model = Net().cuda()
    {wrap}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in loader:
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()

def main():
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(Net().cuda())
    loader = DataLoader(data, sampler=DistributedSampler(data))
    {call}

main()
"""


def script(wrap: str = "pass", call: str = "fold(loader)") -> str:
    return SCRIPT.format(wrap=wrap, call=call)


def test_it_is_told() -> None:
    (finding,) = found("DF301", script())
    assert finding.because == "model is made in this function and trained, and nothing wraps it"
    assert not finding.edits


@pytest.mark.parametrize(
    "text",
    [
        script("model = torch.nn.parallel.DistributedDataParallel(model)"),
        script("model = spread(model)"),
        script(call="if not args.distributed: fold(loader)"),
        script(call="if args.distributed: return\n    fold(loader)"),
    ],
    ids=["wrapped", "given to a function", "one process", "behind the others' way out"],
)
def test_what_may_be_wrapped_or_of_one_process_is_left_alone(text: str) -> None:
    assert [each for each in found("DF301", text) if "is made in" in each.because] == []
