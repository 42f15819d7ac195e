"""Pass signals to the launcher on to the run."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Any

from .process_tree import ProcessTree

_FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP")


class SignalForwarder:
    """Passes signals on while a run lasts, and kills the run if it does not end in time.

    `received` is the first signal that came. With `last`, the process ends soon after the run, and
    until then ignores the signals: how the run ended is decided and recorded.
    """

    def __init__(self, grace: float, *, last: bool = False) -> None:
        self.received: int | None = None
        self._tree: ProcessTree | None = None
        self._grace = grace
        self._last = last
        self._deadline = float("inf")
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> SignalForwarder:
        if threading.current_thread() is threading.main_thread():
            for name in _FORWARDED:
                number = getattr(signal, name, None)
                # Ignored stays ignored: that is how nohup and `&` in a script ask for it.
                if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                    self._handlers[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, signal.SIG_IGN if self._last and not failed else handler)

    def forward_to(self, tree: ProcessTree) -> None:
        """Send signals to this attempt's processes from now on, also one that came before."""
        self._tree = tree
        if self.received is not None:
            tree.signal_child(self.received)

    @property
    def seconds_left(self) -> float:
        """Seconds of the grace that are left; infinite before any signal."""
        return max(0.0, self._deadline - time.monotonic())

    def escalate(self) -> None:
        """Kill all processes once the grace is over."""
        if self._tree and time.monotonic() > self._deadline:
            self._tree.signal_all(signal.SIGKILL)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.received is None:
            self.received = number
            self._deadline = time.monotonic() + self._grace
            if self._tree:
                self._tree.signal_child(number)
        else:
            self._deadline = 0.0
