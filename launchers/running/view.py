"""What shows a run while it lasts, and what it is told of the run."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import attrs

from .output_monitor import OutputMonitor
from .signals import SignalForwarder
from .watchdog import RunWatchdog, SilenceLimits

_SILENCE = 5.0  # seconds without output that are worth a word

CardSample = Mapping[str, Any]
"""A card at one moment, as a line of gpus.jsonl has it."""


@attrs.frozen
class RunState:
    """An attempt as it stands: what has been read of its output, and the cards' last sample."""

    monitor: OutputMonitor
    watchdog: RunWatchdog
    signals: SignalForwarder
    limits: SilenceLimits
    cards: Callable[[], Sequence[CardSample]]

    @property
    def seconds(self) -> float:
        """Seconds since the attempt began."""
        return time.monotonic() - self.monitor.began

    @property
    def waits_for(self) -> str:
        """What the run waits for, in words that follow "waits for"; empty if it goes on."""
        silent = time.monotonic() - self.monitor.last_output
        if self.signals.received is not None:
            name = signal.Signals(self.signals.received).name
            return (
                f"the end of its processes, after {name}: they are killed in "
                f"{self.signals.seconds_left:.0f} s, or at a second Ctrl-C"
            )
        if self.watchdog.hung:
            return "each rank's stack, which goes into the log: the run hangs"
        if self.watchdog.cause:
            return "the end of its ranks"
        if self.monitor.out_of_memory and self.limits.out_of_memory > 0:
            left = max(0.0, self.limits.out_of_memory - silent)
            return f"the other ranks, as one is out of memory: stopped in {left:.0f} s"
        if self.monitor.last_output == self.monitor.began:
            return f"the first output, for {silent:.0f} s"
        if silent < _SILENCE:
            return ""
        hang = self.limits.hang
        counts = hang and (self.monitor.step is not None or not self.limits.from_first_step)
        end = f"; at {hang:.0f} s it counts as hung" if counts else ""
        return f"output, for {silent:.0f} s{end}"


class RunView(Protocol):
    """Shows a run on a terminal, one attempt after the other."""

    def show(self, stream: int, chunk: bytes, /) -> None:
        """Show output of stream 1 or 2, as it comes."""

    def look(self, state: RunState, /) -> None:
        """Show the attempt as it stands; called several times a second."""

    def close(self) -> None:
        """Take away what was drawn, at the end of an attempt."""
