"""Compute in fp64 what a script computes in fp32: it tells rounding from other arithmetic."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def compute_in_double(torch: Any) -> None:
    """Replace fp32 by fp64 in all that an imported torch computes from now on.

    What a script makes in fp32 is made in fp64, and what it reads in fp32 becomes fp64 where both
    meet. Parameters become fp64 when their optimizer is made or their model is wrapped, whichever
    is first. Other types, such as fp16, stay.
    """
    torch.set_default_dtype(torch.float64)
    _widen_models(torch)
    _mode(torch).__enter__()


def _mode(torch: Any) -> Any:
    """A mode that changes the arguments of torch's functions; it is never left."""
    from torch.overrides import TorchFunctionMode

    single, double = torch.float32, torch.float64

    class Double(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = dict(kwargs or {})
            if function is torch.Tensor.float:
                function = torch.Tensor.double
            tensors = [*_tensors(torch, (*args, *kwargs.values()))]
            mixed = any(each.dtype == double for each in tensors)

            def widened(value: Any) -> Any:
                if value is single:
                    return double
                if mixed and isinstance(value, torch.Tensor) and value.dtype == single:
                    return value.double()
                if type(value) in (list, tuple):
                    return type(value)(map(widened, value))
                return value

            return function(
                *_changed(function, args, widened, torch),
                **{name: widened(value) for name, value in kwargs.items()},
            )

    return Double()


def _changed(function: Any, args: Any, widened: Callable[[Any], Any], torch: Any) -> list[Any]:
    """The arguments, widened; a tensor that is written to stays, and others become as it is."""
    name = getattr(function, "__name__", "")
    writes = (name.endswith("_") and not name.endswith("__")) or name == "__setitem__"
    if not writes or not args:
        return [widened(value) for value in args]
    target = args[0]
    if name != "__setitem__":
        return [target, *(widened(value) for value in args[1:])]
    *places, value = args[1:]
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        value = value.to(target.dtype)
    return [target, *places, value]


def _tensors(torch: Any, values: Any) -> Any:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif type(value) in (list, tuple):
            yield from _tensors(torch, value)


def _widen_models(torch: Any) -> None:
    """Make parameters fp64 before anything holds on to them."""

    def widen_parameters(params: Any) -> Any:
        groups = [*params]
        for group in groups:
            entries = group["params"] if isinstance(group, dict) else [group]
            if isinstance(group, dict) and not isinstance(entries, torch.Tensor):
                entries = group["params"] = [*entries]
            for entry in [entries] if isinstance(entries, torch.Tensor) else entries:
                tensor = entry[1] if isinstance(entry, tuple) else entry
                if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float32:
                    tensor.data = tensor.data.double()
        return groups

    _before(torch.optim.Optimizer, widen_parameters)
    _before(torch.nn.parallel.DistributedDataParallel, lambda model: model.double())


def _before(owner: Any, change: Callable[[Any], Any]) -> None:
    """Pass a constructor what ``change`` makes of its first argument."""
    original = owner.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if args:
            args = (change(args[0]), *args[1:])
        else:
            name = "module" if "module" in kwargs else "params"
            kwargs[name] = change(kwargs[name])
        original(self, *args, **kwargs)

    owner.__init__ = init
