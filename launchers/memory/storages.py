"""Track allocation and release of tensor storages under fake tensors."""

from __future__ import annotations

import contextlib
import functools
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, ValuesView
from typing import Any

import attrs
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, _DispatchCacheKey
from torch.utils.flop_counter import flop_registry

DEVICE = torch.ops.prim.device.default
COLLECTIVES = (torch.ops.c10d._allgather_base_, torch.ops.c10d._reduce_scatter_base_)
WorkspaceFunction = Callable[..., int]
"""Computes a kernel's workspace in bytes from its arguments."""


@attrs.define
class Block:
    """A storage: its size in bytes, and what it is used for."""

    size: int
    role: str


class StorageTracker(FakeTensorMode):  # type: ignore[no-untyped-call]
    """A fake tensor mode that records every storage as operations create and release it.

    It extends FakeTensorMode, as a second dispatch mode around it would be slower, and skips those
    parts of its work that do not affect storages.
    """

    def __init__(self, inner: dict[Any, WorkspaceFunction]) -> None:
        super().__init__()
        self._depth = 0
        self.blocks: list[Block] = []
        self.events: list[int] = []
        self.role = "workspace"
        self.flops = self.bytes_moved = 0
        self._inner = inner
        self._live: dict[int, int | None] = {}  # address of a storage -> block, if it has bytes

    def track(self, tensor: Tensor, role: str | None = None) -> None:
        """Record a tensor's storage if it is new; `role` also changes that of a known one."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self._live:
            self._live[storage._cdata] = self._allocate(storage.nbytes(), role or self.role)
            weakref.finalize(storage, self._release, storage._cdata).atexit = False
        elif role and (block := self._live[storage._cdata]) is not None:
            self.blocks[block].role = role

    def _allocate(self, size: int, role: str) -> int:
        self.blocks.append(Block(size, role))
        self.events.append(len(self.blocks) - 1)
        return len(self.blocks) - 1

    def _release(self, address: int) -> None:
        block = self._live.pop(address)
        if block is not None:
            self.events.append(~block)

    def forget_released(self) -> None:
        """Begin the record anew, with the storages that there are now."""
        live = sorted((n, address) for address, n in self._live.items() if n is not None)
        self.blocks = [self.blocks[number] for number, _ in live]
        self._live |= {address: number for number, (_, address) in enumerate(live)}
        self.events = [*range(len(live))]

    @contextlib.contextmanager
    def following_resizes(self, role: str) -> Iterator[None]:
        """Record storages that are emptied and filled again, each time as a new block of a role.

        FSDP2 does so with the weights that it gathers, and no operation tells of it.
        """
        resize = torch.UntypedStorage.resize_

        def recorded(storage: torch.UntypedStorage, size: int) -> Any:
            address = storage._cdata
            if address in self._live:
                block = self._live[address]
                if block is not None:
                    self.events.append(~block)
                self._live[address] = self._allocate(size, role) if size else None
            return resize(storage, size)

        torch.UntypedStorage.resize_ = recorded  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign]

    def dispatch(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation as FakeTensorMode does; operations nested in it are not recorded."""
        if func is DEVICE:  # the most frequent call
            return args[0].fake_device
        named = dict(kwargs or {})
        if self._depth:
            return super().dispatch(func, types, args, named)
        if _in_place(func) and not any(map(_is_constant, _tensors(args))):
            result = args[0] if func._schema.returns else None  # it allocates nothing
        else:
            self._depth = 1
            try:
                result = super().dispatch(func, types, args, named)
            finally:
                self._depth = 0
        self._record(func, args, named, result)
        return result

    def _cache_key(self, *words: Any) -> Any:
        """The key under which FakeTensorMode caches an operation's results, cheaper to compute.

        It leaves out what never occurs here: sparse, quantized, conjugated and symbolic tensors,
        inference mode, and other defaults for new tensors.
        """
        func, args, kwargs = words[-3:]
        if isinstance(func, torch._ops.OpOverload):
            key: list[Any] = [func]
            if _extend_key(args, key) and _extend_key([*kwargs, *kwargs.values()], key):
                return _DispatchCacheKey(tuple(key))
        return super()._cache_key(*words)

    def _record(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        """Record an operation's results, workspace, floating-point operations and bytes moved."""
        results = [*_tensors(result)]
        for tensor in results:
            self.track(tensor)
        packet = func.overloadpacket
        if packet in COLLECTIVES:
            for tensor in _tensors(args):
                self.track(tensor, "buckets")
        if packet in self._inner:  # allocated while the results are, and released at once
            size = self._inner[packet](*args, **kwargs)
            self.events.append(~self._allocate(size, "workspace"))
        if packet in flop_registry:
            self.flops += flop_registry[packet](*args, **kwargs, out_val=result)
        if not func.is_view:
            operands = itertools.chain(_tensors(args), _tensors(kwargs.values()), results)
            self.bytes_moved += sum(tensor.numel() * tensor.itemsize for tensor in operands)


@functools.cache
def _in_place(func: Any) -> bool:
    """Whether an operation only writes to its first argument, a tensor or a list of them."""
    first, *others = func._schema.arguments or [None]
    return (
        first is not None
        and _is_written(first)
        and not any(map(_is_written, others))
        and all(map(_is_written, func._schema.returns))
        and torch.Tag.inplace_view not in func.tags
    )


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _is_constant(tensor: Tensor) -> bool:
    """Whether FakeTensorMode tracks the tensor's value, as for an optimizer's step counter."""
    return getattr(tensor, "constant", None) is not None


def _extend_key(arguments: Iterable[Any], key: list[Any]) -> bool:
    """Add to a key what results depend on; False if an argument is of another kind than usual."""
    for argument in arguments:
        if isinstance(argument, FakeTensor):
            if _is_constant(argument) or argument.layout is not torch.strided:
                return False
            size = argument.untyped_storage().nbytes()
            key += (argument.dtype, argument.shape, argument.stride(), argument.storage_offset())
            key += (size, argument.fake_device, argument.requires_grad)
        elif isinstance(argument, (list, tuple)):
            key += (type(argument), len(argument))
            if not _extend_key(argument, key):
                return False
        elif isinstance(argument, Tensor):
            return False
        else:
            key += (type(argument), argument)  # as 1 equals 1.0, but results differ
    return True


def _tensors(tree: Any) -> Iterator[Tensor]:
    """The tensors among an operation's arguments or results, also in nested lists."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, (list, tuple, ValuesView)):
        for item in tree:
            yield from _tensors(item)
