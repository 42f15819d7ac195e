"""Trace the allocations of two training steps under fake tensors."""

from __future__ import annotations

import contextlib
import gc
import itertools
from collections.abc import Iterator
from typing import Any

import attrs
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from .configured import DTYPES
from .cuda import KERNEL_WORKSPACES, as_on_card
from .networks import build, make_batch, make_optimizer, materialize
from .sharding import LocalParts, fake_ranks, gathered_for_evaluation, shard
from .step import TrainingStep
from .storages import Block, StorageTracker

HOST = "host"  # the role of blocks that are not on the card


@attrs.frozen
class AllocationTrace:
    """Blocks in order of allocation; `events` are their numbers, or ~number when one is released.

    `last_step` is the index in `events` where the last step begins. `accumulated_backward` are the
    start and end of its second backward pass, which runs with the gradients of the first already
    allocated; of a sharded step they are those of gathering all weights.
    `trainable` and `bytes_moved` are in bytes.
    """

    blocks: list[Block]
    events: list[int]
    last_step: int
    accumulated_backward: tuple[int, int]
    trainable: int
    flops: int
    bytes_moved: int


SMALL_BATCH = 2
"""Examples of the training step ahead of an evaluation, which leaves the optimizer's state. What
a step of the training's own batch leaves in the allocator's cache is given back where it is needed.
"""


def trace(step: TrainingStep, batch: int) -> AllocationTrace:
    """Trace two steps of `batch` examples, the second of which is like all later ones.

    The first has one forward and backward pass, the second has two. Steps of a sharded training
    have as many as they accumulate, since gradients are divided with the last one only; it ends
    with all weights gathered, as they are for an evaluation.
    """
    if step.sharded:
        with fake_ranks(step.world) as mesh:
            return _sharded_trace(step, batch, mesh)
    model = build(step)
    card = step.capability is not None
    watch = StorageTracker(KERNEL_WORKSPACES if card else {})
    with _card_dispatch(step.capability), watch, _no_garbage_collection():
        watch.role = "parameters"
        model = materialize(model)
        optimizer = make_optimizer(model, foreach=card, kind=step.network.optimizer)
        trainable = [weight for weight in model.parameters() if weight.requires_grad]
        _backward(watch, step, batch if step.training else SMALL_BATCH, model)
        _update(watch, step, model, optimizer)
        marks = [len(watch.events)]
        if step.training:
            for _ in range(2):
                watch.flops = watch.bytes_moved = 0
                _backward(watch, step, batch, model)
                marks.append(len(watch.events))
            _update(watch, step, model, optimizer)
        else:
            watch.flops = watch.bytes_moved = 0
            with torch.no_grad():
                _forward(watch, step, batch, model)
            marks += [len(watch.events)] * 2
        size = sum(weight.numel() * weight.itemsize for weight in trainable)
        return _trace_of(watch, marks, size)


def _sharded_trace(step: TrainingStep, batch: int, mesh: DeviceMesh) -> AllocationTrace:
    model = build(step)
    card = step.capability is not None
    watch = StorageTracker(KERNEL_WORKSPACES if card else {})
    resizes = watch.following_resizes("buckets")
    with _card_dispatch(step.capability), watch, resizes, _no_garbage_collection():
        watch.role = "parameters"
        model = materialize(model)
        size = sum(weight.nbytes for weight in model.parameters() if weight.requires_grad)
        sharded: Any = shard(model, mesh)
        watch.forget_released()  # what dividing takes once; the evaluation takes more
        parts = LocalParts(sharded)
        optimizer = make_optimizer(parts, foreach=card, kind=step.network.optimizer)
        last = 0
        for _ in range(2):
            last = len(watch.events)
            for left in reversed(range(1 + step.accumulates)):
                watch.flops = watch.bytes_moved = 0
                sharded.set_requires_gradient_sync(not left)
                torch.autograd.backward(_loss(watch, step, batch, model))
            parts.take_gradients()
            _label_gradients(watch, parts)
            _update(watch, step, parts, optimizer)
        watch.role = "buckets"
        marks = [last, len(watch.events)]
        with gathered_for_evaluation(model):
            marks.append(len(watch.events))
        return _trace_of(watch, marks, size)


def _trace_of(watch: StorageTracker, marks: list[int], trainable: int) -> AllocationTrace:
    """What was watched, with the marks of the last step and of its second backward pass."""
    last, *again = marks
    events = [
        event
        for start, end in itertools.pairwise([0, *marks, len(watch.events)])
        for event in _sort_releases(watch.events[start:end])
    ]
    return AllocationTrace(
        watch.blocks, events, last, (again[0], again[1]), trainable, watch.flops, watch.bytes_moved
    )


def _backward(watch: StorageTracker, step: TrainingStep, batch: int, model: nn.Module) -> None:
    torch.autograd.backward(_loss(watch, step, batch, model))
    _label_gradients(watch, model)


def _loss(watch: StorageTracker, step: TrainingStep, batch: int, model: nn.Module) -> Tensor:
    loss = _forward(watch, step, batch, model)
    watch.role = "workspace"
    return loss


def _label_gradients(watch: StorageTracker, model: nn.Module | LocalParts) -> None:
    for weight in model.parameters():
        if weight.grad is not None:
            watch.track(weight.grad, "gradients")


def _update(
    watch: StorageTracker,
    step: TrainingStep,
    model: nn.Module | LocalParts,
    optimizer: torch.optim.Optimizer,
) -> None:
    card = step.capability is not None
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=card)
    optimizer.step()
    for state in optimizer.state.values():
        for name, tensor in state.items():
            watch.track(tensor, HOST if name == "step" else "optimizer")
    optimizer.zero_grad()


def _forward(watch: StorageTracker, step: TrainingStep, batch: int, model: nn.Module) -> Tensor:
    watch.role = "activations"
    half = step.precision != "fp32"
    inputs = make_batch(step, batch)
    with torch.autocast("cpu", DTYPES[step.precision] if half else None, enabled=half):
        loss: Tensor = model(*inputs)
    return loss


def _sort_releases(events: list[int]) -> list[int]:
    """Sort successive releases in order of allocation, so that equal steps give equal traces.

    Autocast releases its copies of the weights in the order of their addresses, which is random.
    """
    runs = itertools.groupby(events, lambda event: event < 0)
    return [
        event
        for released, run in runs
        for event in (sorted(run, reverse=True) if released else run)
    ]


def _card_dispatch(capability: tuple[int, int] | None) -> contextlib.AbstractContextManager[None]:
    return as_on_card(capability) if capability else contextlib.nullcontext()


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Keep reference cycles until the end, so that equal steps give equal traces."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
