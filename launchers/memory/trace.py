"""What two training steps allocate, under fake tensors."""

from __future__ import annotations

import contextlib
import gc
import itertools
from collections.abc import Iterator

import attrs
import torch
from torch import Tensor, nn

from .cuda import INNER, as_on_card
from .networks import DTYPES, batch_of, build, materialized, optimizer_of
from .step import TrainingStep
from .storages import Block, Watch

HOST = "host"  # not on the card


@attrs.frozen
class AllocationTrace:
    """Blocks in the order in which they came; `events` holds their numbers, ~number as one goes.

    `last` is the place in `events` where the last step begins. Of its two backward passes the
    second, with the gradients of the first there, is the events `again`.
    """

    blocks: list[Block]
    events: list[int]
    last: int
    again: tuple[int, int]
    trainable: int
    flops: int
    moved: int


def trace(step: TrainingStep, batch: int) -> AllocationTrace:
    """Blocks and events of two steps of `batch` examples, of which the second is like all others.

    The first one has one forward and backward pass, the second one has two.
    """
    model = build(step)
    card = step.capability is not None
    watch = Watch(INNER if card else {})
    with _as_on(step.capability), watch, _no_collection():
        watch.role = "parameters"
        model = materialized(model)
        optimizer = optimizer_of(model, foreach=card)
        trainable = [weight for weight in model.parameters() if weight.requires_grad]
        _backward(watch, step, batch, model)
        _update(watch, step, model, optimizer)
        places = [len(watch.events)]
        if step.training:
            for _ in range(2):
                watch.flops = watch.moved = 0
                _backward(watch, step, batch, model)
                places.append(len(watch.events))
            _update(watch, step, model, optimizer)
        else:
            watch.flops = watch.moved = 0
            with torch.no_grad():
                _forward(watch, step, batch, model)
            places += [len(watch.events)] * 2
        last, *again = places
        size = sum(weight.numel() * weight.itemsize for weight in trainable)
        events = [
            event
            for start, end in itertools.pairwise([0, *places, len(watch.events)])
            for event in _in_order(watch.events[start:end])
        ]
        return AllocationTrace(
            watch.blocks, events, last, (again[0], again[1]), size, watch.flops, watch.moved
        )


def _backward(watch: Watch, step: TrainingStep, batch: int, model: nn.Module) -> None:
    loss = _forward(watch, step, batch, model)
    watch.role = "workspace"
    torch.autograd.backward(loss)
    del loss
    for weight in model.parameters():
        if weight.grad is not None:
            watch.see(weight.grad, "gradients")


def _update(
    watch: Watch, step: TrainingStep, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    card = step.capability is not None
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=card)
    optimizer.step()
    for state in optimizer.state.values():
        for name, tensor in state.items():
            watch.see(tensor, HOST if name == "step" else "optimizer")
    optimizer.zero_grad()


def _forward(watch: Watch, step: TrainingStep, batch: int, model: nn.Module) -> Tensor:
    watch.role = "activations"
    half = step.precision != "fp32"
    inputs = batch_of(step, batch)
    with torch.autocast("cpu", DTYPES[step.precision] if half else None, enabled=half):
        loss: Tensor = model(*inputs)
    return loss


def _in_order(events: list[int]) -> list[int]:
    """The same with blocks that go at once in the order in which they came.

    Autocast drops its copies of the weights in the order of their addresses, by chance.
    """
    runs = itertools.groupby(events, lambda event: event < 0)
    return [event for goes, run in runs for event in (sorted(run, reverse=True) if goes else run)]


def _as_on(capability: tuple[int, int] | None) -> contextlib.AbstractContextManager[None]:
    return as_on_card(capability) if capability else contextlib.nullcontext()


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Whatever hangs in a cycle stays until the end, so that every trace goes alike."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
