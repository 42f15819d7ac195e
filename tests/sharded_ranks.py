"""A program of two ranks that hold parts of a model: what its helpers promise, asserted in each."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
import torch
from ddpfix.patcher.capabilities import fsdp_helper_code as helpers
from torch.distributed.tensor import DTensor

WIDTH = 6


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.linear(x))


class Network(torch.nn.Module):
    """Layers between tied weights, a part that is not used, and a buffer of bools."""

    mask: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.enter = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.layers = torch.nn.ModuleList([Block() for _ in range(3)])
        self.leave = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.leave.weight = self.enter.weight
        self.other = torch.nn.Linear(WIDTH, 1)
        self.register_buffer("mask", torch.rand(WIDTH) < 0.5)

    def forward(self, x: torch.Tensor, other: bool = False) -> torch.Tensor:
        x = self.enter(x)
        for layer in self.layers:
            x = layer(x)
        return self.other(x).mean() if other else self.leave(x * self.mask).square().mean()


def batch(rank: int, number: int) -> torch.Tensor:
    return torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(10 * number + rank))


def check_first_state(model: Any, rank: int) -> None:
    """Ranks were made with other weights and buffers, and have rank 0's."""
    torch.manual_seed(0)
    expected = Network().state_dict()
    state = model.state_dict()
    assert list(state) == list(expected)
    assert not any(isinstance(value, DTensor) for value in state.values())
    assert torch.equal(state["mask"], expected["mask"])
    part = model.layers.state_dict()["0.linear.weight"]
    for value, name in ((state["enter.weight"], "enter.weight"), (part, "layers.0.linear.weight")):
        assert value.shape == expected[name].shape
        assert torch.equal(value, expected[name]) if rank == 0 else value.isnan().all()
    assert state["enter.weight"] is state["leave.weight"]


def train(model: Any, optimizer: Any, rank: int, world: int) -> None:
    """Steps as a lone process takes them with all ranks' batches."""
    torch.manual_seed(0)
    alone = Network()
    reference = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
    for number in range(3):
        for micro in range(2):
            if micro == 0:
                with model.no_sync():
                    (model(batch(rank, number)) / 2).backward()
            else:
                (model(batch(rank, number + 50)) / 2).backward()
        norm = helpers.summed_norm(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5))
        for seed in (number, number + 50):
            for each in range(world):
                (alone(batch(each, seed)) / 2 / world).backward()
        expected = torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.5)
        assert f"{norm:.5f}" == f"{expected:.5f}"
        for one in (optimizer, reference):
            one.step()
            one.zero_grad()
        evaluate(model, alone, rank)
    state, moments = model.state_dict(), optimizer.state_dict()["state"]
    assert moments.keys() == reference.state_dict()["state"].keys()
    if rank == 0:
        for name, value in alone.state_dict().items():
            torch.testing.assert_close(state[name], value)
        for key, values in reference.state_dict()["state"].items():
            torch.testing.assert_close(moments[key]["momentum_buffer"], values["momentum_buffer"])


@torch.inference_mode()
def evaluate(model: Any, alone: Network, rank: int) -> None:
    """Rank 1 evaluates more, and what is saved in between does not part the weights."""
    model.eval()
    model.state_dict()
    model.to("cpu")
    for number in range(2 + 3 * rank):
        torch.testing.assert_close(model(batch(7, number)), alone(batch(7, number)))
    model.train()
    assert all(isinstance(weight, DTensor) for weight in model.parameters())


def skip_overflow(model: Any, optimizer: Any, rank: int) -> None:
    """An overflow on one rank skips the step of all."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    before = model.state_dict()
    loss = model(batch(rank, 1))
    scaler.scale(loss * (float("inf") if rank == 1 else 1.0)).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    assert scaler.get_scale() == 1.0
    after = model.state_dict()
    assert rank or all(torch.equal(before[name], after[name]) for name in before)


def go_back(model: Any, optimizer: Any, rank: int) -> None:
    """What was saved is loaded again, in eval mode too, from rank 0's values."""
    saved, moments = model.state_dict(), optimizer.state_dict()
    for evaluating in (False, True):
        model.train(not evaluating)
        with torch.no_grad():
            for weight in model.parameters():
                weight.zero_()
        model.load_state_dict(saved)
        optimizer.load_state_dict(moments)
        assert not any(isinstance(weight, DTensor) for weight in model.parameters()) or (
            not evaluating
        )
        loaded, again = model.state_dict(), optimizer.state_dict()
        assert rank or all(torch.equal(saved[name], loaded[name]) for name in saved)
        for key, values in moments["state"].items() if rank == 0 else ():
            found = again["state"][key]["momentum_buffer"]
            assert torch.equal(values["momentum_buffer"], found)
    model.train()


def ends(action: Any, because: str) -> None:
    with pytest.raises(SystemExit, match=because):
        action()


def main() -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.distributed.init_process_group("gloo")
    torch.manual_seed(rank)
    model = Network()
    stale = torch.optim.SGD(model.parameters(), lr=0.1)
    model = helpers.shard_over_ranks(model)
    assert type(model).__name__ == "Network"
    check_first_state(model, rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    helpers.deal_optimizer_state(optimizer)
    model(batch(0, 0))
    train(model, optimizer, rank, world)
    skip_overflow(model, optimizer, rank)
    go_back(model, optimizer, rank)
    ends(model.compile, "--compile")
    ends(stale.step, "holds weights from before")
    optimizer.zero_grad()
    model(batch(rank, 0), other=True).backward()
    ends(optimizer.step, "differs between ranks or steps")
    torch.distributed.destroy_process_group()
    print("all is as promised", file=sys.stderr)


if __name__ == "__main__":
    main()
