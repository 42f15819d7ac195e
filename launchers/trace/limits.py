"""Limits on steps, epochs and evaluation batches."""

from __future__ import annotations

from dataclasses import dataclass, field

from .events import Limit
from .recorder import Recorder


@dataclass
class Limits:
    """Counts steps and epochs; None means no limit."""

    recorder: Recorder
    max_steps: int | None = None
    max_epochs: int | None = None
    max_eval_batches: int | None = None
    _steps: dict[int, int] = field(default_factory=dict)
    _epochs: int = 0
    training_over: str | None = None

    def note_step(self, optimizer: int) -> None:
        """Count a step of an optimizer; the one with the most steps decides."""
        self._steps[optimizer] = self._steps.get(optimizer, 0) + 1
        if self.max_steps is not None and self._steps[optimizer] >= self.max_steps:
            self._reach("max-steps", self.max_steps)

    def note_epoch(self) -> None:
        """Count a complete training pass over a loader."""
        self._epochs += 1
        if self.max_epochs is not None and self._epochs >= self.max_epochs:
            self._reach("max-epochs", self.max_epochs)

    def evaluation_over(self, batches: int) -> str | None:
        """The name of the limit, once an evaluation pass has yielded enough batches."""
        reached = self.max_eval_batches is not None and batches >= self.max_eval_batches
        return "max-eval-batches" if reached else None

    def force(self) -> None:
        """Record that the tracer ends the script, which does not stop by itself."""
        name = self.training_over or "max-eval-batches"
        value = {
            "max-steps": self.max_steps,
            "max-epochs": self.max_epochs,
            "max-eval-batches": self.max_eval_batches,
        }[name]
        self.recorder.emit(Limit(name=name, value=value or 0, forced=True))

    def _reach(self, name: str, value: int) -> None:
        if self.training_over is None:
            self.training_over = name
            self.recorder.emit(Limit(name=name, value=value, forced=False))
