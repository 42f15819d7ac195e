"""End a command on SIGINT, SIGTERM or SIGHUP so that everything it made is cleaned up.

Python ends at once on the last two, and leaves temporary folders behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
_arrivals: list[int] = []
"""The pipes that name the signals that came, of the contexts that are active."""


@contextlib.contextmanager
def unwinding() -> Iterator[None]:
    """Raise SystemExit(128 + n) where the main thread stands when one of the signals, n, comes.

    Further ones are ignored while the context is left. Ignored signals stay ignored: that is how
    nohup and ``&`` in a script ask for it. Does nothing in other threads.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
    handlers: dict[int, Any] = {}
    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:
            handlers[number] = signal.signal(number, _raise)
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    # Names also the signals that others handle in the meantime, such as while a run lasts.
    previous = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    _arrivals.append(reader)
    try:
        yield
    finally:
        _arrivals.remove(reader)
        signal.set_wakeup_fd(previous)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)


def stop_if_signalled() -> None:
    """Raise SystemExit if a signal has come in `unwinding`, also where a run has handled it."""
    for reader in _arrivals:
        with contextlib.suppress(BlockingIOError):
            for number in os.read(reader, 4096):
                if signal.Signals(number).name in _NAMES:
                    _raise(number, None)


def _raise(number: int, _: FrameType | None) -> None:
    for name in _NAMES:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    print(f"ddpfix: stopped by {signal.Signals(number).name}", file=sys.stderr)
    raise SystemExit(128 + number)
