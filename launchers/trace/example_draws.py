"""Give each example of a dataset the same random draws, whichever rank or worker fetches it."""

from __future__ import annotations

import contextlib
import functools
import random
import sys
import weakref
import zlib
from collections.abc import Iterator
from typing import Any


class _Seeded:
    """A dataset whose examples are fetched with draws of their own, other ones in each pass."""

    def __init__(self, torch: Any, dataset: Any, number: int) -> None:
        self._torch, self._dataset, self._pass = torch, dataset, number
        if type(dataset) is torch.utils.data.Subset:
            self.__getitems__ = self._each
        elif hasattr(dataset, "__getitems__"):
            self.__getitems__ = dataset.__getitems__

    def __getitem__(self, index: Any) -> Any:
        with _draws(self._torch, zlib.crc32(f"{self._pass} {index}".encode())):
            return self._dataset[index]

    def _each(self, indices: Any) -> list[Any]:
        return [self[index] for index in indices]


def seed_examples(torch: Any) -> None:
    """Crops, flips and noise of an example then depend on it and on the pass over its dataset.

    As dropout's, their draws would depend on how a batch is split. Does not cover what a script
    draws in its collate function or its step, and datasets without indices.
    """
    passes: dict[int, tuple[weakref.ref[Any], int]] = {}  # of datasets, which need not have a hash
    base = torch.utils.data.dataloader._BaseDataLoaderIter
    fetcher = torch.utils.data._utils.fetch._MapDatasetFetcher
    begin, make = base.__init__, fetcher.__init__

    def pass_over(dataset: Any) -> int:
        known, number = passes.get(id(dataset), (None, 0))
        return number if known is not None and known() is dataset else 0

    @functools.wraps(begin)
    def count(self: Any, loader: Any, *rest: Any) -> None:
        with contextlib.suppress(TypeError):  # a list
            number = pass_over(loader.dataset) + 1
            passes[id(loader.dataset)] = weakref.ref(loader.dataset), number
        begin(self, loader, *rest)

    @functools.wraps(make)
    def wrap(self: Any, dataset: Any, *rest: Any) -> None:
        make(self, dataset, *rest)
        self.dataset = _Seeded(torch, dataset, pass_over(dataset))

    base.__init__, fetcher.__init__ = count, wrap


@contextlib.contextmanager
def _draws(torch: Any, seed: int) -> Iterator[None]:
    """Draw by a seed, and go on afterwards as if nothing had been drawn."""
    generator, numpy = torch.default_generator, sys.modules.get("numpy")
    kept = generator.get_state(), random.getstate()
    arrays = numpy.random.get_state() if numpy is not None else None
    generator.manual_seed(seed)
    random.setstate(random.Random(seed).getstate())
    if numpy is not None:
        numpy.random.set_state(numpy.random.RandomState(seed).get_state())
    try:
        yield
    finally:
        generator.set_state(kept[0])
        random.setstate(kept[1])
        if numpy is not None and arrays is not None:
            numpy.random.set_state(arrays)
