"""Memory, for work that makes many objects and ends: looked through and given back seldom."""

from __future__ import annotations

import gc


class patient_collector:  # noqa: N801 - a function to those who use it
    """Let the collector look seldom: trees and modules are many objects, and none is garbage yet.

    A quarter of the time of checking, for some 140 MB on all of transformers' sources, 520 in all;
    a twelfth of a launch's start.
    """

    def __enter__(self) -> None:
        self.before = gc.get_threshold()
        gc.set_threshold(1_000_000, 20, 100)

    def __exit__(self, *error: object) -> None:
        gc.set_threshold(*self.before)


def keep_freed_memory() -> None:
    """Let the C library keep what the parser frees, in place of giving it back after each file.

    A third of the page faults of checking many files, which are a sixth of the time. glibc takes
    the size of a block that is mapped and freed for its thresholds (mallopt(3), M_MMAP_THRESHOLD);
    the block is never touched. Elsewhere this does nothing.
    """
    bytes(30 << 20)
