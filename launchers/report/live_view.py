"""The view of a run on a terminal: its output as ever, and below it how the run stands.

Finished lines of the output go past above and stay, as they would without the view; a line that is
still being drawn over, as a progress bar is, stands in the view.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING

import attrs

from ...standard_streams import abandon
from ..running.view import RunState
from .live_figures import LiveFigures
from .live_frame import RunTitle, frame
from .live_lines import StreamLines

if TYPE_CHECKING:
    from .live_panel import Panel

_INTERVAL = 0.2  # seconds between two drawings
_SHARE = 0.05  # of the time at most goes into drawing
_MOST_READ = 1 << 13
"""Characters of finished lines that are read for figures at once, the last ones."""
_MOST_PENDING = 1 << 20  # bytes that are drawn at once at the latest


class LiveView:
    """Shows one run; `RunView` is what the runner knows of it."""

    def __init__(self, run: RunTitle) -> None:
        self._run = run
        self._begin_attempt()

    def _begin_attempt(self) -> None:
        self._figures = LiveFigures(self._run.passes)
        self._lines = {1: StreamLines(), 2: StreamLines()}
        self._read: frozenset[str] = frozenset()  # unfinished lines, at the last drawing
        self._early: list[tuple[int, bytes]] = []  # before anything was drawn
        self._panel: Panel | None = None
        self._is_lost = False  # the terminal
        self._due = 0.0
        self._chunks = self._pending = 0

    def show(self, stream: int, chunk: bytes) -> None:
        """Take output; it is shown with the next drawing."""
        self._chunks += 1
        self._pending += len(chunk)
        if self._panel is None:
            self._early.append((stream, chunk))
        self._lines[stream].add(chunk, self._chunks)

    def look(self, state: RunState) -> None:
        """Draw, if it is time."""
        began = time.monotonic()
        if (began < self._due and self._pending < _MOST_PENDING) or self._is_lost:
            self._forget_if_lost()
            return
        try:
            if self._panel is None:
                from .live_panel import Panel  # with rich, which the start of the ranks need not

                self._panel, self._early = Panel(), []
            elif self._panel.is_to_stop:
                panel, self._panel = self._panel, None
                panel.stop()
                return
            self._draw(self._panel, state)
        except (OSError, ValueError):
            self._lose()
        took = time.monotonic() - began
        self._due = began + max(_INTERVAL, took / _SHARE)
        self._pending = 0

    def close(self) -> None:
        """Leave all output as it would stand without a view, and be ready for a next attempt."""
        try:
            if self._panel is None:
                for stream, chunk in self._early:
                    ours = (sys.stdout, sys.stderr)[stream - 1]
                    ours.buffer.write(chunk)
                    ours.flush()
            elif not self._is_lost:
                rows = [row for lines in self._lines.values() for row in lines.take_all()]
                self._panel.close([text for _, text in sorted(rows, key=_number)])
        except (OSError, ValueError):
            self._lose()
        # A lowered plan has another peak than was predicted.
        self._run = attrs.evolve(self._run, predicted=None, passes={})
        self._begin_attempt()

    def _draw(self, panel: Panel, state: RunState) -> None:
        now = time.monotonic()
        rows = [row for lines in self._lines.values() for row in lines.take_finished()]
        finished = [text for _, text in sorted(rows, key=_number)]
        unfinished = [text for lines in self._lines.values() for text in lines.unfinished]
        for text in (*_last(finished), *unfinished):
            if text not in self._read:
                self._figures.read(text[-_MOST_READ:], now)
        self._read = frozenset(unfinished)
        rows_of_view = frame(self._run, self._figures, state, unfinished, now, panel.size)
        panel.draw(finished, rows_of_view)

    def _lose(self) -> None:
        """Draw no more: the terminal has gone. The run goes on, and so does its log."""
        self._is_lost = True
        if self._panel is not None:
            with contextlib.suppress(OSError, ValueError):
                self._panel.close([])
        for stream in (sys.stdout, sys.stderr):
            if not os.isatty(stream.fileno()):
                abandon(stream)
        self._forget_if_lost()

    def _forget_if_lost(self) -> None:
        if self._is_lost:
            for lines in self._lines.values():
                lines.take_finished()
            self._early = []


def _number(row: tuple[int, str]) -> int:
    return row[0]


def _last(lines: list[str]) -> list[str]:
    """The last lines, up to _MOST_READ characters."""
    size, first = 0, len(lines)
    while first and size < _MOST_READ:
        first -= 1
        size += len(lines[first])
    return lines[first:]
