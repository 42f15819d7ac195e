"""Stop a run that will not end by itself: a rank hangs, or is out of memory and the others wait."""

from __future__ import annotations

import signal
import time

import attrs

from .output_monitor import OutputMonitor
from .process_tree import ProcessTree

_DUMP_SECONDS = 10.0
"""Seconds for the ranks to write their stacks, or to end, before all are killed."""

HANG_STATUS = 124
"""The exit status of a run that hung, as with timeout(1)."""


@attrs.frozen
class SilenceLimits:
    """Seconds without output after which a run is stopped; 0 means never.

    `hang`: in general; `out_of_memory`: after an OOM that ends a rank, as torch says.
    `from_first_step`: before the first step nothing counts as a hang, so that data may be prepared
    in silence, and scripts that show no steps are never stopped.
    """

    hang: float = 0.0
    out_of_memory: float = 30.0
    from_first_step: bool = False

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that make a process write all its stacks on SIGABRT."""
        return {"PYTHONFAULTHANDLER": "1"} if self.hang else {}


class RunWatchdog:
    """Watches one attempt; `cause` says why it was stopped, and is empty otherwise."""

    def __init__(self, tree: ProcessTree, monitor: OutputMonitor, limits: SilenceLimits) -> None:
        self.cause = ""
        self.hung = False
        self._tree, self._monitor, self._limits = tree, monitor, limits
        self._deadline = float("inf")
        self._ranks: list[int] = []

    def look(self) -> None:
        """Stop the run if a limit is exceeded."""
        now = time.monotonic()
        silent = now - self._monitor.last_output
        if self.cause:
            if now > self._deadline or (self.hung and not self._tree.any_alive(self._ranks)):
                self._tree.signal_all(signal.SIGKILL)
        elif self._monitor.out_of_memory and 0 < self._limits.out_of_memory < silent:
            self._stop("stopped: a rank ran out of memory and the others waited for it")
            self._tree.signal_all(signal.SIGTERM)
        elif 0 < self._limits.hang < silent and self._has_begun():
            self.hung = True
            self._stop(
                f"hung: no output for {self._limits.hang:g} s; each rank's stacks are in the log"
            )
            self._ranks = self._tree.ranks()
            # Their launcher would stop the other ranks, with their stacks half written, as soon as
            # the first one ends.
            self._tree.signal_all(signal.SIGSTOP, self._ranks)
            self._tree.signal(self._ranks, signal.SIGABRT)

    def _has_begun(self) -> bool:
        return self._monitor.step is not None or not self._limits.from_first_step

    def _stop(self, cause: str) -> None:
        self.cause = cause
        self._deadline = time.monotonic() + _DUMP_SECONDS
