"""The curves of a training, read from its log: loss, learning rate, scores and pace over steps.

A log says nothing of which of its progress bars is the training's. It is the one that most losses
stand on or behind, else the one with the most steps; its passes are counted on.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from ...errors import InputError
from .log_lines import Bar, LogLine, read_line

MAX_POINTS = 2000
"""The most points of a curve; beyond it every second one is dropped."""
_BLOCK = 1 << 20
_LONGEST_LINE = 1 << 14
_LINE_END = re.compile(rb"[\r\n]+")
_SIGNS = (b"%|", b"oss", b"=", b":")
"""A line without any of these has no figure."""


@attrs.define
class LogCurve:
    """Values over steps, thinned out where they become too many."""

    steps: list[int] = attrs.field(factory=list)
    values: list[float] = attrs.field(factory=list)
    _every: int = 1
    _skipped: int = 0

    def add(self, step: int, value: float) -> None:
        """Add a value; a second one of the same step takes the place of the first."""
        if self.steps and self.steps[-1] == step:
            self.values[-1] = value
            return
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        self.steps.append(step)
        self.values.append(value)
        if len(self.steps) > MAX_POINTS:
            del self.steps[::2], self.values[::2]
            self._every *= 2

    @property
    def last(self) -> float | None:
        """The last value, if there is one."""
        return self.values[-1] if self.values else None


@attrs.frozen
class TrainingPass:
    """A pass of the training's progress bar: its length, how far it came, and in how long."""

    length: int
    steps: int
    seconds: float | None

    @property
    def step_seconds(self) -> float | None:
        """Seconds per step of the bar; None where they are not known."""
        return self.seconds / self.steps if self.seconds and self.steps else None


@attrs.define
class LogCurves:
    """What a log says of a training. `pace` is in steps of the progress bar per second."""

    loss: LogCurve = attrs.field(factory=LogCurve)
    rate: LogCurve = attrs.field(factory=LogCurve)
    pace: LogCurve = attrs.field(factory=LogCurve)
    scores: dict[str, LogCurve] = attrs.field(factory=dict)
    passes: list[TrainingPass] = attrs.field(factory=list)

    @property
    def step_seconds(self) -> float | None:
        """Seconds per step over all passes; None where no progress bar says them."""
        known = [one for one in self.passes if one.seconds and one.steps]
        steps = sum(one.steps for one in known)
        return sum(one.seconds or 0 for one in known) / steps if steps else None


def read_curves(log: Path) -> LogCurves:
    """The curves of a log. Raises InputError where it cannot be read."""
    length, with_loss = _training_bar(_figures(log))
    reader = _Reader(length, with_loss)
    for line in _figures(log):
        reader.take(line)
    reader.end_pass()
    return reader.curves


def _figures(log: Path) -> Iterator[LogLine]:
    for line in _lines(log):
        if any(sign in line for sign in _SIGNS) and (
            read := read_line(line.decode("utf-8", "replace"))
        ):
            yield read


def _lines(log: Path) -> Iterator[bytes]:
    """The lines of a log; of a very long one, its end."""
    rest = b""
    try:
        with log.open("rb") as file:
            while block := file.read(_BLOCK):
                *whole, rest = _LINE_END.split(rest + block)
                rest = rest[-_LONGEST_LINE:]
                for line in whole:
                    yield line[-_LONGEST_LINE:]
    except OSError as error:
        raise InputError(f"{log}: cannot be read: {error.strerror}") from None
    yield rest


@attrs.define
class BarCounts:
    """Tells from lines which progress bar is the training's, by its length."""

    _on_it: Counter[int] = attrs.field(factory=Counter)
    _behind: Counter[int] = attrs.field(factory=Counter)
    _steps: Counter[int] = attrs.field(factory=Counter)
    _last: Bar | None = None

    def take(self, line: LogLine) -> None:
        """Count a line."""
        if line.bar:
            if self._last and self._last.steps == line.bar.steps:
                self._steps[line.bar.steps] += max(0, line.bar.step - self._last.step)
            self._last = line.bar
        if line.loss is not None and self._last:
            (self._on_it if line.bar else self._behind)[self._last.steps] += 1

    @property
    def training(self) -> tuple[int | None, bool]:
        """The length of the training's progress bar, and whether losses stand on it."""
        for counts in (self._on_it, self._behind, self._steps):
            if counts:
                return counts.most_common(1)[0][0], counts is self._on_it
        return None, False


def _training_bar(lines: Iterable[LogLine]) -> tuple[int | None, bool]:
    counts = BarCounts()
    for line in lines:
        counts.take(line)
    return counts.training


class _Reader:
    """Takes a log's lines in their order, and counts the steps of the training's passes."""

    def __init__(self, length: int | None, with_loss: bool) -> None:
        self.curves = LogCurves()
        self._length, self._with_loss = length, with_loss
        self._done = 0  # steps of the passes that have ended
        self._last: Bar | None = None
        self._lines: list[tuple[int, LogLine]] = []  # of the pass that goes on
        self._named = 0  # the step that a line named last, where there is no bar
        self._before = 0

    def take(self, line: LogLine) -> None:
        """Read one line."""
        if self._length is None:
            self._take_named(line)
        elif line.bar and line.bar.steps == self._length:
            if self._last and begins_anew(self._last, line.bar):
                self.end_pass()
            if self._last and line.bar.step < self._last.step:
                return  # of a rank that is behind another one
            self._last = line.bar
            self._lines.append((self._done + line.bar.step, line))
        elif line.loss is not None and not self._with_loss:
            self._add(self._step, line)
        for name, value in line.scores:
            self.curves.scores.setdefault(name, LogCurve()).add(self._step, value)

    @property
    def _step(self) -> int:
        if self._length is None:
            return self._before + self._named
        return self._done + (self._last.step if self._last else 0)

    def _take_named(self, line: LogLine) -> None:
        """A line of a log without progress bars: it names its step, or is the next one."""
        if line.loss is None:
            return
        step = self._named + 1 if line.step is None else line.step
        if step < self._named:
            self._before += self._named
        self._named = step
        self._add(self._step, line)

    def end_pass(self) -> None:
        """Count the pass, unless it is another loop's with a bar of the same length."""
        last, lines = self._last, self._lines
        self._last, self._lines = None, []
        if last is None:
            return
        if self._with_loss and all(line.loss is None for _, line in lines):
            return
        for step, line in lines:
            self._add(step, line)
            if line.bar and line.bar.pace and line.bar.step:
                self.curves.pace.add(step, line.bar.pace)
        self._done += last.step
        self.curves.passes.append(TrainingPass(last.steps, last.step, _seconds(last)))

    def _add(self, step: int, line: LogLine) -> None:
        if line.loss is not None:
            self.curves.loss.add(step, line.loss)
        if line.rate is not None:
            self.curves.rate.add(step, line.rate)


def begins_anew(last: Bar, bar: Bar) -> bool:
    """Whether a bar is of the next pass: where ranks share a log, one is a little behind."""
    back = last.step - bar.step
    ended = last.step == last.steps and bar.step <= bar.steps // 2
    return back > max(2, bar.steps // 10) or (back > 0 and ended)


def _seconds(last: Bar) -> float | None:
    """How long a pass took.

    A bar that has ended shows its mean pace (tqdm.close), which is finer than its seconds.
    """
    if last.step == last.steps and last.pace:
        return last.step / last.pace
    return last.seconds
