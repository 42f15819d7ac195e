"""Observe which parameters of a model in DistributedDataParallel get a gradient in each backward.

This is what ``find_unused_parameters`` is for: without it, torch's reducer waits for the gradients
of all parameters, and raises in the next step if one did not come.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .events import WrappedGradients
from .recorder import Recorder


@dataclass(eq=False)
class _Wrapped:
    """One wrapped model: the names of its parameters, and what backward passes left out."""

    module_class: str
    find_unused: bool
    names: dict[int, str]
    arrived: set[int] = field(default_factory=set)
    without: set[str] = field(default_factory=set)
    backwards: int = 0


class GradientObserver:
    """Counts the gradients that arrive at the parameters of wrapped models.

    A backward pass counts for the models that it reaches; those that gather no gradients
    (``no_sync``) need none of each parameter.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._all: list[_Wrapped] = []
        self._in_backward = False

    def install(self, torch: Any) -> None:
        """Hook into an imported torch."""
        wrapper = torch.nn.parallel.DistributedDataParallel
        wrapper.__init__ = self._wrap_init(wrapper.__init__)
        torch.autograd.backward = self._wrap_backward(torch.autograd.backward)

    def close(self) -> None:
        """Record what was seen of each model."""
        for one in self._all:
            self._recorder.emit(
                WrappedGradients(
                    module_class=one.module_class,
                    find_unused=one.find_unused,
                    parameters=len(one.names),
                    backwards=one.backwards,
                    without=sorted(one.without),
                )
            )

    def _wrap_init(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def init(wrapper: Any, *args: Any, **kwargs: Any) -> None:
            original(wrapper, *args, **kwargs)
            module = wrapper.module
            trained = {id(p): (n, p) for n, p in module.named_parameters() if p.requires_grad}
            one = _Wrapped(
                module_class=type(module).__name__,
                find_unused=bool(wrapper.find_unused_parameters),
                names={key: name for key, (name, _) in trained.items()},
            )
            self._all.append(one)
            for key, (_, parameter) in trained.items():
                parameter.register_hook(_on_gradient(one, key, wrapper))

        return init

    def _wrap_backward(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> None:
            # Checkpointing runs backward inside backward.
            if self._in_backward:
                return original(*args, **kwargs)
            for one in self._all:
                one.arrived.clear()
            self._in_backward = True
            try:
                original(*args, **kwargs)
            finally:
                self._in_backward = False
            for one in self._all:
                if one.arrived:
                    one.backwards += 1
                    one.without.update(one.names[key] for key in one.names.keys() - one.arrived)
            return None

        return backward


def _on_gradient(one: _Wrapped, key: int, wrapper: Any) -> Callable[[Any], None]:
    known = weakref.ref(wrapper)  # which holds the parameter that holds this

    def arrive(_: Any) -> None:
        alive = known()
        if alive is not None and alive.require_backward_grad_sync:
            one.arrived.add(key)

    arrive.__torch_unserializable__ = True  # type: ignore[attr-defined]  # for torch.save of a model
    return arrive
