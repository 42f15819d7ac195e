"""Storages as they come and go under fake tensors."""

from __future__ import annotations

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
Inner = Callable[..., int]
"""Bytes that a kernel takes for itself while it runs, from its arguments."""


@attrs.define
class Block:
    """A storage: its bytes, and what it is for."""

    size: int
    role: str


class Watch(FakeTensorMode):  # type: ignore[no-untyped-call]
    """Fake tensors, and sees every operation's results, and so every storage that is born.

    A mode of its own around fake tensors would see the same in half as much time again. What is
    left out of FakeTensorMode's work changes no storage, and was two fifths of the time.
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
        if func is DEVICE:  # two of three calls
            return args[0].fake_device
        named = dict(kwargs or {})
        if self._depth:
            return super().dispatch(func, types, args, named)
        if _in_place(func) and not any(map(_constant, _tensors(args))):
            found = args[0] if func._schema.returns else None  # nothing comes, nothing goes
        else:
            self._depth = 1
            try:
                found = super().dispatch(func, types, args, named)
            finally:
                self._depth = 0
        self._look(func, args, named, found)
        return found

    def _cache_key(self, *words: Any) -> Any:
        """Under which an operation's results are known: without what is never on here.

        Those are sparse, quantized, conjugated and symbolic tensors, inference mode, and other
        defaults for new tensors. FakeTensorMode's own key takes a third of a trace.
        """
        func, args, kwargs = words[-3:]
        if isinstance(func, torch._ops.OpOverload):
            key: list[Any] = [func]
            if _told(args, key) and _told([*kwargs, *kwargs.values()], key):
                return _DispatchCacheKey(tuple(key))
        return super()._cache_key(*words)

    def _look(self, func: Any, args: Any, kwargs: dict[str, Any], found: Any) -> None:
        results = [*_tensors(found)]
        for tensor in results:
            self.see(tensor)
        packet = func.overloadpacket
        if packet in self._inner:  # while the results are there
            size = self._inner[packet](*args, **kwargs)
            self.events.append(~self._born(size, "workspace"))
        if packet in flop_registry:
            self.flops += flop_registry[packet](*args, **kwargs, out_val=found)
        if not func.is_view:
            every = itertools.chain(_tensors(args), _tensors(kwargs.values()), results)
            self.moved += sum(tensor.numel() * tensor.itemsize for tensor in every)


@functools.cache
def _in_place(func: Any) -> bool:
    """Whether it changes the numbers of its first argument, a tensor or a list, and no more."""
    first, *others = func._schema.arguments or [None]
    return (
        first is not None
        and _written(first)
        and not any(map(_written, others))
        and all(map(_written, func._schema.returns))
        and torch.Tag.inplace_view not in func.tags
    )


def _written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _constant(tensor: Tensor) -> bool:
    """Whether its number is known, as that of a step's counter, and has to be kept up."""
    return getattr(tensor, "constant", None) is not None


def _told(arguments: Iterable[Any], key: list[Any]) -> bool:
    """Add to a key all that results depend on; whether all arguments are of known kinds."""
    for one in arguments:
        if isinstance(one, FakeTensor):
            if _constant(one) or one.layout is not torch.strided:
                return False
            size = one.untyped_storage().nbytes()
            key += (one.dtype, one.shape, one.stride(), one.storage_offset(), size)
            key += (one.fake_device, one.requires_grad)
        elif isinstance(one, (list, tuple)):
            key += (type(one), len(one))
            if not _told(one, key):
                return False
        elif isinstance(one, Tensor):
            return False
        else:
            key += (type(one), one)  # 1 and 1.0 are one key, and not one result
    return True


def _tensors(tree: Any) -> Iterator[Tensor]:
    """Those among the arguments or results of an operation."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, (list, tuple, ValuesView)):
        for one in tree:
            yield from _tensors(one)
