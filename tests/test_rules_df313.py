"""DF313: A buffer that the forward pass fills is rank 0's alone."""

from __future__ import annotations

import pytest
from cases import found

SCRIPT = """\
import torch
class Memory(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("queue", torch.randn(8, 64))
        self.queue = torch.nn.functional.normalize(self.queue)
    def keep(self, keys):
        {keep}
    def forward(self, x):
        self.keep(x)
        return x.mean()
model = torch.nn.{wrapper}(Memory())
for batch in loader:
    model(batch).backward()
    optimizer.step()
"""
FILLED = "self.queue = torch.cat([self.queue[:, 4:], keys.T], dim=1)"


def script(keep: str = FILLED, wrapper: str = "parallel.DistributedDataParallel") -> str:
    return SCRIPT.format(keep=keep, wrapper=wrapper)


@pytest.mark.parametrize(
    "keep",
    [
        FILLED,
        "self.queue[:, :4] = keys.T",
        "self.queue[:, :4].copy_(keys.T)",
        "self.queue.lerp_(keys.mean(), 0.1)",
        "self.queue.mul_(0.9).add_(keys.sum(0), alpha=0.1)",
        "self.queue.data.copy_(keys.T)",
        "one = keys.mean(0)\n        self.queue[:, 0] = one",
        f"if self.horovod:\n            keys = all_gather(keys)\n        {FILLED}",
    ],
)
def test_what_a_rank_puts_into_a_buffer_is_noted(keep: str) -> None:
    (finding,) = found("DF313", script(keep))
    assert finding.because.endswith("into self.queue")
    assert not finding.edits


KEPT = 'self.register_buffer("queue", torch.randn(8, 64))'


def test_so_is_what_it_puts_into_a_tensor_that_a_model_keeps() -> None:
    text = script("self.queue[0] = keys[0]").replace(KEPT, "self.queue = torch.zeros(8, 64)")
    (finding,) = found("DF313", text)
    assert finding.because.endswith("into self.queue")
    assert found("DF313", text.replace("torch.nn.Module", "Records").replace("forward", "go")) == []


@pytest.mark.parametrize(
    "text",
    [
        script("one = 1\n        self.queue[:, 0] = one"),
        script(f"keys = all_gather(keys)\n        {FILLED}"),
        script("self.queue.mul_(0.9).add_(1)"),
        script("keys.mul_(2).add_(self.queue[0])"),
        script("self.queue += 1"),  # the same on all ranks
        script("self.other = keys"),
        script("b, n = keys.shape\n        self.queue = grid_of(n).to(keys.device)"),
        script(wrapper="Sequential"),
    ],
)
def test_what_is_alike_on_all_ranks_is_not(text: str) -> None:
    assert found("DF313", text) == []


FUNCTION = """\
class Remember(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, number, {name}):
        ctx.save_for_backward(x, number, {name})
        return x @ {name}

    @staticmethod
    def backward(ctx, gradient):
        x, number, memory = ctx.saved_tensors
        memory.index_copy_(0, number, x)
        return gradient, None, None
"""


@pytest.mark.parametrize(("name", "count"), [("memory", 1), ("weight", 0)])
def test_what_a_function_of_autograd_fills_when_it_goes_back_is_noted(
    name: str, count: int
) -> None:
    keep = "Remember.apply(keys, 0, self.queue)"
    text = script(keep).replace("class Memory", FUNCTION.format(name=name) + "class Memory")
    assert [each.because for each in found("DF313", text)] == [
        "each rank puts its part of the batch into self.queue"
    ] * count


BANK = """\
class Bank(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, number, features):
        {held}
        ctx.save_for_backward(x, number)
        return x @ features.t()

    @staticmethod
    def backward(ctx, gradient):
        x, number = ctx.saved_tensors
        {gathered}
        for one, n in zip(x, number):
            ctx.features[n] = 0.9 * ctx.features[n] + 0.1 * one
        return gradient, None, None


def look_up(x, number, features, heat=0.1):
    return Bank.apply(x, number, features) / heat
"""


@pytest.mark.parametrize(
    ("held", "gathered", "count"),
    [
        ("ctx.features = features", "pass", 1),
        ("ctx.features = features.clone()", "pass", 0),
        ("ctx.features = features", "x, number = all_gather(x), all_gather(number)", 0),
    ],
)
def test_so_is_what_it_fills_by_its_context_where_a_function_applies_it(
    held: str, gathered: str, count: int
) -> None:
    bank = BANK.format(held=held, gathered=gathered)
    text = script("look_up(keys, 0, self.queue)").replace("class Memory", bank + "class Memory")
    assert len(found("DF313", text)) == count


NORMS = """\
import torch
class Norm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.loc = torch.nn.Parameter(torch.zeros(1, 8))
        self.is_new = True
    def begin(self, x):
        with torch.no_grad():
            {begin}
    def forward(self, x):
        if self.is_new:
            {first}
            self.is_new = False
        return x + self.loc
model = Norm()
{before}
model = torch.nn.parallel.DistributedDataParallel(model)
for batch in loader:
    model(batch).mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("begin", "first", "before", "count"),
    [
        ("self.loc.data.copy_(-x.mean(0, keepdim=True))", "self.begin(x)", "", 1),
        ("pass", "self.loc.data = x.mean(0, keepdim=True)", "", 1),
        ("self.loc.data.copy_(-x.mean(0, keepdim=True))", "self.begin(x)", "model(first)", 0),
        ("self.loc.data.copy_(x)", "pass", "", 0),  # of a file
        ("self.loc.data.copy_(torch.ones(8))", "self.begin(x)", "", 0),
    ],
)
def test_a_weight_that_the_first_batch_makes_is_noted(
    begin: str, first: str, before: str, count: int
) -> None:
    told = found("DF313", NORMS.format(begin=begin, first=first, before=before))
    assert len(told) == count
    assert all("makes self.loc, a weight, of its own part" in each.because for each in told)
