"""The figures of a training that goes on: its step and pass, loss, rate, scores and time left."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from .curves import BarCounts, LogCurve, begins_anew
from .log_lines import Bar, read_line

_LONGEST_LABEL = 30


@attrs.frozen
class SeenBar:
    """A progress bar with what stands before it, and when it was seen."""

    bar: Bar
    label: str
    when: float


@attrs.define
class LiveFigures:
    """Reads the lines that a training shows, with the time at which each was seen.

    `passes` says how many passes a training bar of a certain length has, where the plan knows.
    """

    passes: Mapping[int, float] = attrs.field(factory=dict)
    loss: LogCurve = attrs.field(factory=LogCurve)
    rate: float | None = None
    scores: dict[str, float] = attrs.field(factory=dict)
    training: SeenBar | None = None
    other: SeenBar | None = None
    step: int | None = None
    """What a line calls its step, where there are no bars."""
    passes_done: int = 0
    _counts: BarCounts = attrs.field(factory=BarCounts)
    _began: SeenBar | None = None  # the first sight of the training's pass
    _points: int = 0

    def read(self, text: str, now: float) -> None:
        """Read a line."""
        line = read_line(text)
        if line is None:
            return
        self._counts.take(line)
        if line.bar:
            self._take_bar(SeenBar(line.bar, _label(text), now))
        if line.step is not None:
            self.step = line.step
        if line.loss is not None:
            self._points += 1
            self.loss.add(self._points, line.loss)
        if line.rate is not None:
            self.rate = line.rate
        self.scores.update(line.scores)

    def _take_bar(self, seen: SeenBar) -> None:
        length, _ = self._counts.training
        if length is not None and seen.bar.steps != length:
            self.other = seen
            return
        before = self.training
        if before is None or before.bar.steps != seen.bar.steps:
            self.passes_done, self._began = 0, seen
        elif begins_anew(before.bar, seen.bar):
            self.passes_done += 1
            self._began = seen
        elif seen.bar.step < before.bar.step:
            return  # of a rank that is behind another one
        self.training = seen
        if self.other and self.other.bar.steps == seen.bar.steps:
            self.other = None  # it was taken for another one at first

    @property
    def pace(self) -> float | None:
        """Steps per second: as the bar says it, else as it was seen."""
        seen, first = self.training, self._began
        if seen is None or seen.bar.pace:
            return seen.bar.pace if seen else None
        if first is None or seen.when <= first.when or seen.bar.step <= first.bar.step:
            return None
        return (seen.bar.step - first.bar.step) / (seen.when - first.when)

    @property
    def passes_expected(self) -> float | None:
        """The passes of the whole training; None where that is not known."""
        return self.passes.get(self.training.bar.steps) if self.training else None

    def seconds_left(self, now: float) -> tuple[float, float | None] | None:
        """Seconds to the end of the pass and of the training; None where they are not known."""
        seen, pace = self.training, self.pace
        if seen is None or not pace:
            return None
        since = now - seen.when
        left = (seen.bar.steps - seen.bar.step) / pace
        passes = self.passes_expected
        whole = None
        if passes is not None and passes > self.passes_done:
            steps = seen.bar.steps * (passes - self.passes_done) - seen.bar.step
            whole = max(0.0, steps / pace - since)
        return max(0.0, left - since), whole


def _label(text: str) -> str:
    """What stands before a bar, without its per cent."""
    before, bar, _ = text.partition("%|")
    return before.rstrip("0123456789 ").rstrip(": ")[-_LONGEST_LABEL:].strip() if bar else ""
