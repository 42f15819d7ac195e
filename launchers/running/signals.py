"""Signals to the launcher, passed on to the run."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Any

from .process_tree import ProcessTree

_FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP")


class Stop:
    """Passes signals on while the run lasts and sees to it that it ends.

    `received` is the first signal that came. `family` is who gets them: it changes from one attempt
    of the run to the next.
    """

    def __init__(self, grace: float) -> None:
        self.received: int | None = None
        self._family: ProcessTree | None = None
        self._grace = grace
        self._deadline = float("inf")
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            for name in _FORWARDED:
                number = getattr(signal, name, None)
                # Ignored stays ignored: that is how nohup and `&` in a script ask for it.
                if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def reach(self, family: ProcessTree) -> None:
        """From now on `family` is told, and at once what came before it was there."""
        self._family = family
        if self.received is not None:
            family.signal_child(self.received)

    def escalate(self) -> None:
        """Kill everything once the time to end is over."""
        if self._family and time.monotonic() > self._deadline:
            self._family.signal_all(signal.SIGKILL)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.received is None:
            self.received = number
            self._deadline = time.monotonic() + self._grace
            if self._family:
                self._family.signal_child(number)
        else:
            self._deadline = 0.0
