"""Storages as they come and go during training steps under fake tensors."""

from __future__ import annotations

import contextlib
import gc
import itertools
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from .cuda import INNER, as_on_card
from .networks import DTYPES, batch_of, build, materialized, optimizer_of
from .step import Step

HOST = "host"  # not on the card
Inner = Callable[..., int]
"""Bytes that a kernel takes for itself while it runs, from its arguments."""


@attrs.define
class Block:
    """A storage: its bytes, and what it is for."""

    size: int
    role: str


@attrs.frozen
class Trace:
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


class Watch(FakeTensorMode):  # type: ignore[no-untyped-call]
    """Fake tensors, and sees every operation's results, and so every storage that is born.

    A mode of its own around fake tensors would see the same in half as much time again.
    """

    def __init__(self, inner: dict[Any, Inner]) -> None:
        super().__init__()
        self._depth = 0
        self.blocks: list[Block] = []
        self.events: list[int] = []
        self.role = "workspace"
        self.flops = self.moved = 0
        self._inner = inner
        self._live: dict[int, int] = {}  # address of a storage -> block

    def see(self, tensor: Tensor, role: str | None = None) -> None:
        """Count a tensor's storage; a `role` is given to one that is there already, too."""
        storage = tensor.untyped_storage()
        known = self._live.get(storage._cdata)
        if known is None:
            known = self._born(storage.nbytes(), role or self.role)
            self._live[storage._cdata] = known
            weakref.finalize(storage, self._gone, storage._cdata).atexit = False
        elif role:
            self.blocks[known].role = role

    def _born(self, size: int, role: str) -> int:
        self.blocks.append(Block(size, role))
        self.events.append(len(self.blocks) - 1)
        return len(self.blocks) - 1

    def _gone(self, address: int) -> None:
        self.events.append(~self._live.pop(address))

    def dispatch(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """An operation as FakeTensorMode does it; what it does by others is not seen."""
        named = dict(kwargs or {})
        self._depth += 1
        try:
            found = super().dispatch(func, types, args, named)
        finally:
            self._depth -= 1
        if not self._depth and func is not torch.ops.prim.device.default:
            self._look(func, args, named, found)
        return found

    def _look(self, func: Any, args: Any, kwargs: dict[str, Any], found: Any) -> None:
        tensors = _tensors(found)
        for tensor in tensors:
            self.see(tensor)
        if func.overloadpacket in self._inner:  # while the results are there
            size = self._inner[func.overloadpacket](*args, **kwargs)
            self.events.append(~self._born(size, "workspace"))
        if func.overloadpacket in flop_registry:
            self.flops += flop_registry[func.overloadpacket](*args, **kwargs, out_val=found)
        if not func.is_view:
            both = (*_tensors((args, kwargs)), *tensors)
            self.moved += sum(tensor.numel() * tensor.itemsize for tensor in both)


def trace(step: Step, batch: int) -> Trace:
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
        return Trace(
            watch.blocks, events, last, (again[0], again[1]), size, watch.flops, watch.moved
        )


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _backward(watch: Watch, step: Step, batch: int, model: nn.Module) -> None:
    loss = _forward(watch, step, batch, model)
    watch.role = "workspace"
    torch.autograd.backward(loss)
    del loss
    for weight in model.parameters():
        if weight.grad is not None:
            watch.see(weight.grad, "gradients")


def _update(watch: Watch, step: Step, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    card = step.capability is not None
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=card)
    optimizer.step()
    for state in optimizer.state.values():
        for name, tensor in state.items():
            watch.see(tensor, HOST if name == "step" else "optimizer")
    optimizer.zero_grad()


def _forward(watch: Watch, step: Step, batch: int, model: nn.Module) -> Tensor:
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
