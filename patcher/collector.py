"""Python's collector of cycles, made to look seldom."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def patient_collector() -> Iterator[None]:
    """Let the collector look seldom: trees and modules are many objects, and none is garbage yet.

    A quarter of the time of checking, for some 140 MB on all of transformers' sources, 490 in all;
    a twelfth of a launch's start.
    """
    before = gc.get_threshold()
    gc.set_threshold(1_000_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
