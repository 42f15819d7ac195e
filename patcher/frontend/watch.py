"""Check again whenever a file has changed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable

PAUSE = 0.3  # seconds between two looks at the files
Stamps = dict[str, tuple[int, int]]


def watch(check: Callable[[], int], files: Callable[[], Iterable[str]]) -> None:
    """Check now, and then with every change of a file; ends with KeyboardInterrupt only.

    ``files`` are looked up anew each time, as some may come or go.
    """
    while True:
        before = stamps(files())
        check()
        sys.stdout.flush()
        print("ddpfix: waiting for a change; Ctrl-C ends it", file=sys.stderr, flush=True)
        while stamps(files()) == before:
            time.sleep(PAUSE)


def stamps(files: Iterable[str]) -> Stamps:
    """Time and size of each file that is there."""
    found: Stamps = {}
    for path in files:
        try:
            status = os.stat(path)
        except OSError:
            continue
        found[path] = status.st_mtime_ns, status.st_size
    return found


def modules_beside(scripts: Iterable[str]) -> Iterable[str]:
    """Scripts, and all modules in their folders and in those below, which they may import."""
    folders = dict.fromkeys(os.path.dirname(path) or "." for path in scripts)
    for folder in folders:
        for place, inner, names in os.walk(folder):
            inner[:] = [name for name in inner if not name.startswith((".", "__pycache__"))]
            yield from (os.path.join(place, name) for name in names if name.endswith(".py"))
