"""One line for a run whose output is kept from the terminal: its seconds and its step."""

from __future__ import annotations

from ...progress_line import ProgressLine
from .view import RunState

_INTERVAL = 0.5  # seconds between two drawings


class StepLine:
    """Shows a quiet run; `RunView` is what the runner knows of it."""

    def __init__(self) -> None:
        self._line = ProgressLine()
        self._due = 0.0

    def show(self, stream: int, chunk: bytes) -> None:
        """Show no output."""

    def look(self, state: RunState) -> None:
        """Show seconds, step and loss."""
        if state.seconds < self._due:
            return
        self._due = state.seconds + _INTERVAL
        monitor = state.monitor
        words = [f"{state.seconds:.0f} s"]
        if monitor.step is not None:
            words.append(f"step {monitor.step} of {monitor.steps}")
        if monitor.loss is not None:
            words.append(f"loss {monitor.loss:.4g}")
        if monitor.last_output > monitor.began and state.waits_for:
            words.append(f"waits for {state.waits_for}")
        self._line.show(f"  {', '.join(words)}")

    def close(self) -> None:
        """Take the line away."""
        self._line.end()
