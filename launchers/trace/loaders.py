"""What every DataLoader hands out, whether it trains or evaluates, and where a limit ends it.

Indices are drawn in the main process whatever the number of workers, so the iterator's one method
that draws shows them all; they are attributed to the batch that they become.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from attrs import define, field

from .events import BatchEvent, Pass, PassEnd, Site
from .limits import Limits
from .recorder import Recorder
from .sites import Sites

ENDLESS = 10_000
"""Empty training passes in a row after which a script is taken to wait for data for ever."""


_Looks = tuple[Site | None, str, int | None]  # where it is iterated, dataset class and length


@define(eq=False)
class _Loader:
    number: int
    passes: int = 0
    trains: bool = False


@define(eq=False)
class _Live:
    """A pass in progress."""

    number: int
    loader: _Loader
    looks: _Looks
    drawn: deque[list[int | None]] = field(factory=deque)
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
        """Nothing but an evaluation, as far as its batches have shown."""
        seen = self.grad is not None
        return seen and not self.backwards and not (self.grad and self.training)


class Loaders:
    """Follows the passes over DataLoaders."""

    def __init__(self, recorder: Recorder, sites: Sites, limits: Limits) -> None:
        self._recorder = recorder
        self._sites = sites
        self._limits = limits
        self._loaders: weakref.WeakKeyDictionary[Any, _Loader] = weakref.WeakKeyDictionary()
        self._passes: weakref.WeakKeyDictionary[Any, _Live] = weakref.WeakKeyDictionary()
        self._watch: dict[int, weakref.ref[Any]] = {}
        self._stack: list[_Live] = []
        self._count = 0
        self._loader_count = 0
        # A loader made anew for each epoch is known by where it is iterated and what it holds: one
        # loop may serve both training and evaluation.
        self._trained: set[_Looks] = set()
        self._empty_in_a_row = 0
        self._armed: Callable[[], None] | None = None

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
        """A backward pass has run: on the batch handed out last. Returns that pass's number."""
        self._empty_in_a_row = 0
        if not self._stack:
            return None
        live = self._stack[-1]
        live.backwards += 1
        live.loader.trains = True
        self._trained.add(live.looks)
        return live.number

    def close(self) -> None:
        """End what is still open, because the script has ended."""
        self._disarm()
        for live in list(self._passes.values()):
            self._finish(live, complete=False, limit=None)

    @staticmethod
    def _wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            return around(functools.partial(original, self, *args, **kwargs), self, *args)

        setattr(owner, name, method)

    def _iter(self, original: Callable[[], Iterator[Any]], loader: Any) -> Iterator[Any]:
        if self._limits.training_over is not None and not self._recorder.is_child:
            looks = _looks(self._sites.here(), loader)
            if self._is_training(self._loaders.get(loader), looks):
                self._nothing_left()
                # No workers are started for an empty pass.
                return iter(())
        return original()

    def _nothing_left(self) -> None:
        self._empty_in_a_row += 1
        if self._empty_in_a_row >= ENDLESS:
            self._limits.force()
            raise SystemExit(0)

    def _init(self, original: Callable[[], None], iterator: Any, loader: Any) -> None:
        original()
        if not self._recorder.is_child and iterator not in self._passes:
            self._begin(iterator, loader)

    def _reset(self, original: Callable[[], None], iterator: Any, loader: Any, *_: Any) -> None:
        original()
        live = self._passes.get(iterator)
        # Workers that persist are reset for another pass; a first reset precedes the first draw.
        if live is not None and (live.draws or live.over):
            self._finish(live, complete=False, limit=None)
            self._begin(iterator, loader)

    def _begin(self, iterator: Any, loader: Any) -> None:
        known = self._loaders.get(loader)
        if known is None:
            known = self._loaders[loader] = _Loader(self._loader_count)
            self._loader_count += 1
        live = _Live(self._count, known, _looks(self._sites.here(), loader))
        self._count += 1
        self._passes[iterator] = live
        # A loop left by ``break`` is over when its iterator goes.
        self._watch[live.number] = weakref.ref(iterator, lambda _: self._abandon(live))
        sampler = loader.batch_sampler if loader.batch_size is None else loader.sampler
        iterable = hasattr(loader.dataset, "__iter__") and not hasattr(
            loader.dataset, "__getitem__"
        )
        self._recorder.emit(
            Pass(
                pass_id=live.number,
                loader=known.number,
                epoch=known.passes,
                dataset=live.looks[1],
                length=live.looks[2],
                sampler=type(sampler if sampler is not None else loader.sampler).__name__,
                batch_size=loader.batch_size,
                batches=None if iterable else _length(loader),
                workers=loader.num_workers,
                site=live.looks[0],
            )
        )
        known.passes += 1

    def _next_index(self, original: Callable[[], Any], iterator: Any) -> Any:
        index = original()
        live = self._passes.get(iterator)
        if live is not None:
            live.drawn.append(_integers(index))
            live.draws += 1
        return index

    def _next(self, original: Callable[[], Any], iterator: Any) -> Any:
        live = self._passes.get(iterator)
        if live is None:
            return original()
        limit = None if live.over else self._limit(live)
        if live.over or limit is not None:
            self._finish(live, complete=False, limit=limit)
            raise StopIteration
        try:
            data = original()
        except StopIteration:
            self._finish(live, complete=True, limit=None)
            raise
        self._hand_out(live)
        return data

    def _limit(self, live: _Live) -> str | None:
        before = live.loader if live.loader.passes > 1 or live.backwards else None
        if self._is_training(before, live.looks):
            return self._limits.training_over
        return self._limits.evaluation_over(live.batches) if live.evaluates else None

    def _is_training(self, loader: _Loader | None, looks: _Looks) -> bool:
        """Whether a pass trains: as the loader did before, or, if new, one that looks like it."""
        return loader.trains if loader is not None else looks in self._trained

    def _hand_out(self, live: _Live) -> None:
        if not self._stack or self._stack[-1] is not live:
            if live in self._stack:
                self._stack.remove(live)
            self._stack.append(live)
        indices = live.drawn.popleft() if live.drawn else []
        self._recorder.emit(BatchEvent(pass_id=live.number, number=live.batches, indices=indices))
        live.batches += 1
        if live.grad is None:
            self._arm(live)

    def _arm(self, live: _Live) -> None:
        """Have the next module that is called say in which mode it is."""
        self._disarm()

        def look(module: Any, _: Any) -> None:
            self._disarm()
            live.training, live.grad = module.training, self._torch.is_grad_enabled()

        if "torch._dynamo" in sys.modules:  # else nothing is compiled
            look = self._torch._dynamo.disable(look)
        self._armed = self._torch.nn.modules.module.register_module_forward_pre_hook(look).remove

    def _disarm(self) -> None:
        if self._armed is not None:
            self._armed()
            self._armed = None

    def _abandon(self, live: _Live) -> None:
        if not self._recorder.is_child:
            self._finish(live, complete=False, limit=None)

    def _finish(self, live: _Live, *, complete: bool, limit: str | None) -> None:
        if live.over:
            return
        live.over = True
        self._watch.pop(live.number, None)
        if live in self._stack:
            self._stack.remove(live)
        if live.kind == "eval":
            self._empty_in_a_row = 0
        self._recorder.emit(
            PassEnd(
                pass_id=live.number,
                kind=live.kind,
                batches=live.batches,
                drawn=live.draws,
                backwards=live.backwards,
                training=live.training,
                grad=live.grad,
                complete=complete,
                limit=limit,
            )
        )
        if live.kind == "train" and complete:
            self._limits.note_epoch()


def _looks(site: Site | None, loader: Any) -> _Looks:
    return site, type(loader.dataset).__name__, _length(loader.dataset)


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None


def _integers(index: Any) -> list[int | None]:
    many = index if isinstance(index, list | tuple) else [index]
    if not isinstance(index, list | tuple) and getattr(index, "ndim", None):
        many = list(index)  # an array or tensor of indices
    return [_integer(each) for each in many]


def _integer(index: Any) -> int | None:
    try:
        return int(index.__index__())
    except (AttributeError, TypeError):
        return None
