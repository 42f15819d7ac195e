"""Watch a run's output for signs of life, its steps and losses, and an OOM."""

from __future__ import annotations

import re
import time
from collections import deque
from typing import Any

from .library_bars import LIBRARY_BAR_BYTES

OUT_OF_MEMORY = re.compile(
    rb"torch\.(?:cuda\.)?OutOfMemoryError: "
    rb"|RuntimeError: (?:CUDA|HIP) (?:error: )?out of memory"
    rb"|AcceleratorError: CUDA error: out of memory"
    rb"|RuntimeError: .{0,80}(?:CUBLAS|CUDNN)_STATUS_ALLOC_FAILED"
)
"""The error as Python prints it. A script that catches it may print it so as well, and go on."""

_UNCAUGHT = re.compile(rb"^\[rank\d+\]: ")
"""How torch begins the lines of an exception that ends a rank: its sys.excepthook, once there is a
process group (torch/distributed/distributed_c10d.py, _distributed_excepthook)."""

TAIL = 1 << 20
"""Bytes of each stream that are kept for the search for tracebacks."""
_LONGEST_LINE = 1 << 16
"""Bytes of a line that are kept, its last ones: a line has no end where a script writes none."""
_MOST_READ = 1 << 13
"""Bytes of a chunk that are read for steps and losses, its last ones: a run that writes more at
once would be slowed down by its reader."""
_SHOWN_PROGRESS = 1 << 12
"""Bytes of a line that are searched for a progress bar and a loss, its last ones."""
_OOM_WORDS = (b"OutOfMemoryError", b"out of memory", b"_ALLOC_FAILED")
"""One of these is in every match of OUT_OF_MEMORY."""
MAX_LOSSES = 1000
"""The most losses that are kept; beyond it every second one is dropped."""

_LINE = re.compile(rb"[\r\n]+")
# As tqdm draws it: "epoch 0:  45%|####      | 9/20 [00:12<00:15,  1.31s/it, loss=0.69]".
_BAR = re.compile(rb"\d+%\|.*?\|\s*(\d+)/(\d+) \[")
_LOSS = re.compile(rb"\bloss\W{1,4}(\d+\.?\d*(?:[eE][-+]?\d+)?)")


class _Tail:
    """The last lines of a stream, about TAIL bytes, with the rank that wrote them."""

    def __init__(self) -> None:
        self._blocks: deque[tuple[int | None, bytes]] = deque()
        self._size = 0

    def add(self, rank: int | None, lines: bytes) -> None:
        """Add whole lines of one rank, and drop the oldest."""
        self._blocks.append((rank, lines[-TAIL:]))
        self._size += len(self._blocks[-1][1])
        while self._size - len(self._blocks[0][1]) >= TAIL:
            self._size -= len(self._blocks.popleft()[1])

    def text(self) -> bytes:
        """All lines, each with its rank before it if that is known."""
        return b"".join(
            _with_rank(rank, line)
            for rank, lines in self._blocks
            for line in _LINE.split(lines)
            if line
        )


class OutputMonitor:
    """Reads the output of an attempt as it comes.

    `began` and `last_output` are times of `time.monotonic`. `step` and `steps` are the position and
    the length of the last progress bar. `loss` is the last one, `losses` are (seconds from the
    start, step, loss). `out_of_memory`: an OOM ends a rank, even if the rank still runs.
    `recovered` are the ranks that went on after an OOM. `units` maps the length of a progress bar
    to the most steps of one of its passes, and their seconds.
    """

    def __init__(self) -> None:
        self.began = self.last_output = time.monotonic()
        self.out_of_memory = False
        self.recovered: set[int | None] = set()
        self._full: set[int | None] = set()  # ranks that were out of memory, and no step since
        self.step: int | None = None
        self.steps: int | None = None
        self.loss: float | None = None
        self.losses: list[tuple[float, int | None, float]] = []
        self.units: dict[int, tuple[int, float]] = {}
        self._positions: dict[int | None, tuple[int, int]] = {}
        self._passes: dict[tuple[int | None, int], tuple[int, float, int]] = {}
        self._tails = {number: _Tail() for number in (1, 2)}
        self._lines: dict[tuple[int, int | None], bytes] = {}
        self._every, self._skipped = 1, 0

    def take(self, stream: int, chunk: bytes, rank: int | None = None) -> None:
        """Read a chunk of stream 1 or 2, written by this rank if known."""
        self.last_output = time.monotonic()
        begun = self._lines.get((stream, rank), b"")
        end = 1 + max(chunk.rfind(b"\n"), chunk.rfind(b"\r"))
        if not end:
            self._lines[stream, rank] = (begun + chunk)[-_LONGEST_LINE:]
            return
        whole = begun + chunk[:end]
        self._lines[stream, rank] = chunk[end:][-_LONGEST_LINE:]
        self._tails[stream].add(rank, whole)
        full = any(word in whole for word in _OOM_WORDS)
        if full or b"%|" in whole or b"loss" in whole:
            part = whole if full else whole[-_MOST_READ:]
            for line in part.replace(b"\r", b"\n").split(b"\n"):
                self._read_line(line, rank)

    def end(self) -> None:
        """Read the lines that have not ended, as the last step of a progress bar has not."""
        for (_, rank), rest in self._lines.items():
            self._read_line(rest, rank)

    def output(self) -> bytes:
        """The last `TAIL` bytes of each stream, each line with its rank if known.

        Standard error comes first: it has the tracebacks.
        """
        texts = {number: self._tails[number].text() for number in (2, 1)}
        for (stream, rank), rest in self._lines.items():
            texts[stream] += _with_rank(rank, rest)
        return b"".join(texts.values())

    def facts(self) -> dict[str, Any]:
        """Facts for the run's record."""
        losses = [[round(when, 1), step, loss] for when, step, loss in self.losses]
        units = {steps: [done, round(seconds, 3)] for steps, (done, seconds) in self.units.items()}
        return {
            "step": self.step,
            "steps": self.steps,
            "loss": self.loss,
            "losses": losses,
            "units": units,
        }

    def _read_line(self, line: bytes, rank: int | None) -> None:
        if any(word in line for word in _OOM_WORDS) and OUT_OF_MEMORY.search(line):
            self.out_of_memory = self.out_of_memory or _UNCAUGHT.match(line) is not None
            self._full.add(rank)
            self.recovered.discard(rank)
        line = line[-_SHOWN_PROGRESS:]
        has_bar = b"%|" in line and not LIBRARY_BAR_BYTES.search(line)
        bar = _BAR.search(line) if has_bar else None
        loss = _LOSS.search(line) if b"loss" in line else None
        if bar:
            # At its end a process may draw the bar once more where it was.
            moved = self._positions.get(rank) != (position := (int(bar[1]), int(bar[2])))
            self._positions[rank] = self.step, self.steps = position
            self._advance(rank, *position)
        if loss:
            self._add_loss(float(loss[1]))
        if rank in self._full and (moved if bar else loss):
            self._full.discard(rank)
            self.recovered.add(rank)

    def _advance(self, rank: int | None, step: int, steps: int) -> None:
        """Time the steps of a progress bar; one that goes back to its beginning is a new pass."""
        now = self.last_output
        first, since, previous = self._passes.get((rank, steps), (step, now, step))
        if step < previous:
            first, since = step, now
        self._passes[rank, steps] = (first, since, step)
        if step - first > self.units.get(steps, (0, 0.0))[0]:
            self.units[steps] = (step - first, now - since)

    def _add_loss(self, loss: float) -> None:
        self.loss = loss
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        self.losses.append((self.last_output - self.began, self.step, loss))
        if len(self.losses) > MAX_LOSSES:
            del self.losses[::2]
            self._every *= 2


def last_progress(text: bytes) -> tuple[int | None, int | None, float | None]:
    """The step and the length of the last progress bar in a text, and its last loss."""
    bar, loss = _last(_BAR, b"%|", text), _last(_LOSS, b"loss", text)
    step, steps = (int(bar[1]), int(bar[2])) if bar else (None, None)
    return step, steps, float(loss[1]) if loss else None


def _last(pattern: re.Pattern[bytes], word: bytes, text: bytes) -> re.Match[bytes] | None:
    """The last match of a pattern in whose every match there is `word`, on one line."""
    end = len(text)
    while (place := text.rfind(word, 0, end)) >= 0:
        begin = 1 + max(text.rfind(b"\n", 0, place), text.rfind(b"\r", 0, place))
        line = _LINE.split(text[begin:end])[0]
        found = [] if LIBRARY_BAR_BYTES.search(line) else list(pattern.finditer(line))
        for match in found[-1:]:
            return match
        end = begin
    return None


def _with_rank(rank: int | None, line: bytes) -> bytes:
    """The line with its rank before it, as torchrun prints it."""
    return (b"" if rank is None else b"[default%d]: " % rank) + line + b"\n"
