"""Storages as they come and go during training steps under fake tensors."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from .networks import DTYPES, batch_of, build, on_cpu, optimizer_of
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

    `marks` are the places in `events` where a step begins, the first being the end of set-up.
    """

    blocks: list[Block]
    events: list[int]
    marks: list[int]
    trainable: int
    flops: int
    moved: int


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation's results, and so every storage that is born."""

    def __init__(self, inner: dict[Any, Inner]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
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

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        needs = self._inner.get(func.overloadpacket)
        found = func(*args, **kwargs)
        if needs:
            self.events.append(~self._born(needs(*args, **kwargs), "workspace"))
        tensors = [leaf for leaf in tree_leaves(found) if isinstance(leaf, Tensor)]
        for tensor in tensors:
            self.see(tensor)
        if func.overloadpacket in flop_registry:
            self.flops += flop_registry[func.overloadpacket](*args, **kwargs, out_val=found)
        if not func.is_view:
            read = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
            self.moved += sum(tensor.numel() * tensor.itemsize for tensor in (*read, *tensors))
        return found


def trace(
    step: Step,
    batch: int,
    *,
    steps: int = 2,
    foreach: bool = False,
    inner: dict[Any, Inner] | None = None,
) -> Trace:
    """Blocks and events of `steps` steps of `batch` examples, of which the last one counts.

    `foreach` and `inner` are what the card does otherwise than the CPU.
    """
    model = build(step)
    with FakeTensorMode(), _no_collection():
        model = on_cpu(model)
        optimizer = optimizer_of(model, foreach=foreach)
        trainable = [weight for weight in model.parameters() if weight.requires_grad]
        with Watch(inner or {}) as watch:
            for tensor in (*model.parameters(), *model.buffers()):
                watch.see(tensor, "parameters")
            marks = []
            for _ in range(steps):
                marks.append(len(watch.events))
                watch.flops = watch.moved = 0
                _step(watch, step, batch, model, optimizer)
        size = sum(weight.numel() * weight.itemsize for weight in trainable)
        return Trace(watch.blocks, watch.events, marks, size, watch.flops, watch.moved)


def _step(
    watch: Watch, step: Step, batch: int, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    if not step.training and optimizer.state:
        with torch.no_grad():
            _forward(watch, step, batch, model)
        return
    # Of several backward passes the second is like all others; of one, it is the first.
    for _ in range(1 + step.accumulates):
        watch.flops = watch.moved = 0
        loss = _forward(watch, step, batch, model)
        watch.role = "workspace"
        torch.autograd.backward(loss)
        del loss
        for weight in model.parameters():
            if weight.grad is not None:
                watch.see(weight.grad, "gradients")
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
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


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Whatever hangs in a cycle stays until the end, so that every trace goes alike."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
