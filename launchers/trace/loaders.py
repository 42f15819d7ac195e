"""Record the batches of every DataLoader and whether it trains or evaluates; apply the limits.

Indices are drawn in the main process for any number of workers, all by one method of the iterator;
each is attributed to its batch.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .events import BatchEvent, Pass, PassEnd, Site
from .limits import Limits
from .random_state import random_state
from .recorder import Recorder
from .sites import Sites

_MAX_EMPTY_PASSES = 10_000
"""Empty training passes in a row after which a script is assumed to wait for data forever."""


if TYPE_CHECKING:
    # Where a loader is iterated, and the class and length of its dataset.
    _Signature = tuple[Site | None, str, int | None]


@dataclass(eq=False)
class _Loader:
    number: int
    passes: int = 0
    trains: bool = False


@dataclass(eq=False)
class _ActivePass:
    """A pass in progress."""

    number: int
    loader: _Loader
    signature: _Signature
    drawn: deque[list[int | None]] = field(default_factory=deque)
    draws: int = 0
    batches: int = 0
    backwards: int = 0
    training: bool | None = None
    grad: bool | None = None
    over: bool = False

    @property
    def kind(self) -> str:
        if self.backwards:
            return "train"
        return "other" if self.grad is None else "eval"

    @property
    def evaluates(self) -> bool:
        """Whether it is certainly an evaluation, by its batches so far."""
        has_forward = self.grad is not None
        return has_forward and not self.backwards and not (self.grad and self.training)


class Loaders:
    """Wraps DataLoader to record its passes."""

    def __init__(self, recorder: Recorder, sites: Sites, limits: Limits) -> None:
        self._recorder = recorder
        self._sites = sites
        self._limits = limits
        self._loaders: weakref.WeakKeyDictionary[Any, _Loader] = weakref.WeakKeyDictionary()
        self._passes: weakref.WeakKeyDictionary[Any, _ActivePass] = weakref.WeakKeyDictionary()
        self._watch: dict[int, weakref.ref[Any]] = {}
        self._stack: list[_ActivePass] = []
        self._count = 0
        self._loader_count = 0
        # Loaders that are created for each epoch are recognized by their signature: where they are
        # iterated is not enough, as one loop may serve both training and evaluation.
        self._trained: set[_Signature] = set()
        self._empty_in_a_row = 0
        self._hook_remover: Callable[[], None] | None = None
        self.state_at_batch: int | None = None  # of the random numbers, at the last batch

    def install(self, torch: Any) -> None:
        """Wrap the DataLoader of an imported torch."""
        self._torch = torch
        module = torch.utils.data.dataloader
        base = module._BaseDataLoaderIter
        self._wrap(module.DataLoader, "__iter__", self._iter)
        self._wrap(base, "__init__", self._init)
        self._wrap(base, "_reset", self._reset)
        self._wrap(base, "_next_index", self._next_index)
        self._wrap(base, "__next__", self._next)

    def note_backward(self) -> int | None:
        """Attribute a backward pass to the last batch; the number of its loader pass."""
        self._empty_in_a_row = 0
        if not self._stack:
            return None
        current = self._stack[-1]
        current.backwards += 1
        current.loader.trains = True
        self._trained.add(current.signature)
        return current.number

    def close(self) -> None:
        """End all passes, because the script has ended."""
        self._remove_hook()
        for current in list(self._passes.values()):
            self._finish(current, complete=False, limit=None)

    @staticmethod
    def _wrap(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            return wrapper(functools.partial(original, self, *args, **kwargs), self, *args)

        setattr(owner, name, method)

    def _iter(self, original: Callable[[], Iterator[Any]], loader: Any) -> Iterator[Any]:
        if self._limits.training_over is not None and not self._recorder.is_child:
            signature = _signature(self._sites.here(), loader)
            if self._is_training(self._loaders.get(loader), signature):
                self._count_empty_pass()
                # Starts no workers.
                return iter(())
        return original()

    def _count_empty_pass(self) -> None:
        self._empty_in_a_row += 1
        if self._empty_in_a_row >= _MAX_EMPTY_PASSES:
            self._limits.force()
            raise SystemExit(0)

    def _init(self, original: Callable[[], None], iterator: Any, loader: Any) -> None:
        original()
        if not self._recorder.is_child and iterator not in self._passes:
            self._begin(iterator, loader)

    def _reset(self, original: Callable[[], None], iterator: Any, loader: Any, *_: Any) -> None:
        original()
        current = self._passes.get(iterator)
        # Persistent workers are reset for every pass; the first reset precedes the first draw.
        if current is not None and (current.draws or current.over):
            self._finish(current, complete=False, limit=None)
            self._begin(iterator, loader)

    def _begin(self, iterator: Any, loader: Any) -> None:
        known = self._loaders.get(loader)
        if known is None:
            known = self._loaders[loader] = _Loader(self._loader_count)
            self._loader_count += 1
        current = _ActivePass(self._count, known, _signature(self._sites.here(), loader))
        self._count += 1
        self._passes[iterator] = current
        # A loop left by ``break`` is over when its iterator is collected.
        self._watch[current.number] = weakref.ref(iterator, lambda _: self._abandon(current))
        sampler = loader.batch_sampler if loader.batch_size is None else loader.sampler
        iterable = hasattr(loader.dataset, "__iter__") and not hasattr(
            loader.dataset, "__getitem__"
        )
        self._recorder.emit(
            Pass(
                pass_id=current.number,
                loader=known.number,
                epoch=known.passes,
                dataset=current.signature[1],
                length=current.signature[2],
                sampler=type(sampler if sampler is not None else loader.sampler).__name__,
                batch_size=loader.batch_size,
                batches=None if iterable else _length(loader),
                workers=loader.num_workers,
                site=current.signature[0],
            )
        )
        known.passes += 1

    def _next_index(self, original: Callable[[], Any], iterator: Any) -> Any:
        index = original()
        current = self._passes.get(iterator)
        if current is not None:
            current.drawn.append(_integers(index))
            current.draws += 1
        return index

    def _next(self, original: Callable[[], Any], iterator: Any) -> Any:
        current = self._passes.get(iterator)
        if current is None:
            return original()
        limit = None if current.over else self._limit(current)
        if current.over or limit is not None:
            self._finish(current, complete=False, limit=limit)
            raise StopIteration
        try:
            data = original()
        except StopIteration:
            self._finish(current, complete=True, limit=None)
            raise
        self._record_batch(current)
        return data

    def _limit(self, current: _ActivePass) -> str | None:
        before = current.loader if current.loader.passes > 1 or current.backwards else None
        if self._is_training(before, current.signature):
            return self._limits.training_over
        return self._limits.evaluation_over(current.batches) if current.evaluates else None

    def _is_training(self, loader: _Loader | None, signature: _Signature) -> bool:
        """Whether a pass trains: as its loader did before or, if that is new, a similar one."""
        return loader.trains if loader is not None else signature in self._trained

    def _record_batch(self, current: _ActivePass) -> None:
        if not self._stack or self._stack[-1] is not current:
            if current in self._stack:
                self._stack.remove(current)
            self._stack.append(current)
        indices = current.drawn.popleft() if current.drawn else []
        self._recorder.emit(
            BatchEvent(pass_id=current.number, number=current.batches, indices=indices)
        )
        current.batches += 1
        self.state_at_batch = random_state(self._torch)
        if current.grad is None:
            self._watch_forward(current)

    def _watch_forward(self, current: _ActivePass) -> None:
        """Note the mode of the next module that is called."""
        self._remove_hook()

        def look(module: Any, _: Any) -> None:
            self._remove_hook()
            current.training, current.grad = module.training, self._torch.is_grad_enabled()

        if "torch._dynamo" in sys.modules:  # else nothing is compiled
            look = self._torch._dynamo.disable(look)
        self._hook_remover = self._torch.nn.modules.module.register_module_forward_pre_hook(
            look
        ).remove

    def _remove_hook(self) -> None:
        if self._hook_remover is not None:
            self._hook_remover()
            self._hook_remover = None

    def _abandon(self, current: _ActivePass) -> None:
        if not self._recorder.is_child:
            self._finish(current, complete=False, limit=None)

    def _finish(self, current: _ActivePass, *, complete: bool, limit: str | None) -> None:
        if current.over:
            return
        current.over = True
        self._watch.pop(current.number, None)
        if current in self._stack:
            self._stack.remove(current)
        if current.kind == "eval":
            self._empty_in_a_row = 0
        self._recorder.emit(
            PassEnd(
                pass_id=current.number,
                kind=current.kind,
                batches=current.batches,
                drawn=current.draws,
                backwards=current.backwards,
                training=current.training,
                grad=current.grad,
                complete=complete,
                limit=limit,
            )
        )
        if current.kind == "train" and complete:
            self._limits.note_epoch()


def _signature(site: Site | None, loader: Any) -> _Signature:
    return site, type(loader.dataset).__name__, _length(loader.dataset)


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None


def _integers(index: Any) -> list[int | None]:
    many = index if isinstance(index, (list, tuple)) else [index]
    if not isinstance(index, (list, tuple)) and getattr(index, "ndim", None):
        many = list(index)  # an array or tensor of indices
    return [_integer(each) for each in many]


def _integer(index: Any) -> int | None:
    try:
        return int(index.__index__())
    except (AttributeError, TypeError):
        return None
