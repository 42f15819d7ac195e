"""Stops a run that will not end by itself: a rank hangs, or is out of memory and others wait."""

from __future__ import annotations

import signal
import time

import attrs

from .output_monitor import OutputMonitor
from .process_tree import ProcessTree

DUMPS = 10.0
"""Seconds that the ranks have to write their stacks, or to end, before all is killed."""

HUNG = 124
"""The exit status of a run that hung, as timeout(1) has it."""


@attrs.frozen
class SilenceLimits:
    """Seconds without any output after which a run is stopped: at all, and once out of memory.

    0 stands for ever. `from_first_step`: before the first step nothing counts as a hang, so that
    data may be prepared in silence, and scripts that show no steps are left alone.
    """

    hung: float = 0.0
    out_of_memory: float = 30.0
    from_first_step: bool = False

    @property
    def variables(self) -> dict[str, str]:
        """What a process needs so that SIGABRT makes it write the stacks of all its threads."""
        return {"PYTHONFAULTHANDLER": "1"} if self.hung else {}


class RunWatchdog:
    """Looks at one attempt; `cause` says why it was stopped, and is empty while it was not."""

    def __init__(self, family: ProcessTree, heard: OutputMonitor, patience: SilenceLimits) -> None:
        self.cause = ""
        self.hung = False
        self._family, self._heard, self._patience = family, heard, patience
        self._deadline = float("inf")
        self._ranks: list[int] = []

    def look(self) -> None:
        """Stop the run if it is time to."""
        now = time.monotonic()
        silent = now - self._heard.last
        if self.cause:
            if now > self._deadline or (self.hung and not self._family.living(self._ranks)):
                self._family.signal_all(signal.SIGKILL)
        elif self._heard.out_of_memory and 0 < self._patience.out_of_memory < silent:
            self._stop("stopped: a rank ran out of memory and the others waited for it")
            self._family.signal_all(signal.SIGTERM)
        elif 0 < self._patience.hung < silent and self._is_under_way():
            self.hung = True
            self._stop(
                f"hung: no output for {self._patience.hung:g} s; each rank's stacks are in the log"
            )
            self._ranks = self._family.ranks()
            # Who started the ranks would stop the others, with their stacks half written, as soon
            # as it sees the first one end.
            self._family.signal_all(signal.SIGSTOP, self._ranks)
            self._family.signal(self._ranks, signal.SIGABRT)

    def _is_under_way(self) -> bool:
        return self._heard.step is not None or not self._patience.from_first_step

    def _stop(self, cause: str) -> None:
        self.cause = cause
        self._deadline = time.monotonic() + DUMPS
