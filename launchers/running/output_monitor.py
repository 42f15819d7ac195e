"""What a run's output tells while it runs: that it lives, its steps and losses, memory run out."""

from __future__ import annotations

import re
import time
from typing import Any

OUT_OF_MEMORY = re.compile(
    rb"torch\.(?:cuda\.)?OutOfMemoryError: "
    rb"|RuntimeError: (?:CUDA|HIP) (?:error: )?out of memory"
    rb"|AcceleratorError: CUDA error: out of memory"
    rb"|RuntimeError: .{0,80}(?:CUBLAS|CUDNN)_STATUS_ALLOC_FAILED"
)
"""As Python prints the error that ends a process; a script that merely logs one says less."""

TAIL = 1 << 20
"""Bytes of each stream that are kept to look for tracebacks in."""
LOSSES = 1000
"""As many losses are kept; beyond that every second one goes."""

_LINE = re.compile(rb"[\r\n]+")
# As tqdm draws it: "epoch 0:  45%|####      | 9/20 [00:12<00:15,  1.31s/it, loss=0.69]".
_BAR = re.compile(rb"\d+%\|.*?\|\s*(\d+)/(\d+) \[")
_LOSS = re.compile(rb"\bloss\W{1,4}(\d+\.?\d*(?:[eE][-+]?\d+)?)")


class OutputMonitor:
    """Takes the output as it comes.

    `last` is when there was any (`time.monotonic`), `step` and `steps` how far the last progress
    bar is, of how many. `losses` are (seconds from the start, step, loss).
    """

    def __init__(self) -> None:
        self.began = self.last = time.monotonic()
        self.out_of_memory = False
        self.step: int | None = None
        self.steps: int | None = None
        self.losses: list[tuple[float, int | None, float]] = []
        self.units: dict[int, tuple[int, float]] = {}
        self._passes: dict[tuple[int | None, int], tuple[int, float, int]] = {}
        self._tails = {1: bytearray(), 2: bytearray()}
        self._lines: dict[tuple[int, int | None], bytes] = {}
        self._every, self._skipped = 1, 0

    def take(self, stream: int, chunk: bytes, rank: int | None = None) -> None:
        """A chunk of stream 1 or 2, of this rank if known."""
        self.last = time.monotonic()
        *whole, rest = _LINE.split(self._lines.get((stream, rank), b"") + chunk)
        self._lines[stream, rank] = rest[-TAIL:]
        for line in whole:
            self._tails[stream] += _told(rank, line)
            self._hear(line, rank)
        del self._tails[stream][:-TAIL]

    def output(self) -> bytes:
        """The end of what came, by lines, with the rank before a line where that is known.

        Standard error is first: that is where tracebacks are.
        """
        streams = {2: bytes(self._tails[2]), 1: bytes(self._tails[1])}
        for (stream, rank), rest in self._lines.items():
            streams[stream] += _told(rank, rest)
        return b"".join(streams.values())

    def facts(self) -> dict[str, Any]:
        """For the record."""
        losses = [[round(when, 1), step, loss] for when, step, loss in self.losses]
        units = {steps: [done, round(seconds, 3)] for steps, (done, seconds) in self.units.items()}
        return {"step": self.step, "steps": self.steps, "losses": losses, "units": units}

    def _hear(self, line: bytes, rank: int | None) -> None:
        self.out_of_memory = self.out_of_memory or OUT_OF_MEMORY.search(line) is not None
        bar, loss = _BAR.search(line), _LOSS.search(line)
        if bar:
            self.step, self.steps = int(bar[1]), int(bar[2])
            self._advance(rank, self.step, self.steps)
        if loss:
            self._keep(float(loss[1]))

    def _advance(self, rank: int | None, step: int, steps: int) -> None:
        """A bar that goes back to its beginning starts another pass."""
        first, since, last = self._passes.get((rank, steps), (step, self.last, step))
        if step < last:
            first, since = step, self.last
        self._passes[rank, steps] = (first, since, step)
        if step - first > self.units.get(steps, (0, 0.0))[0]:
            self.units[steps] = (step - first, self.last - since)

    def _keep(self, loss: float) -> None:
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        self.losses.append((self.last - self.began, self.step, loss))
        if len(self.losses) > LOSSES:
            del self.losses[::2]
            self._every *= 2


def _told(rank: int | None, line: bytes) -> bytes:
    """The line as torch tells whose it is."""
    return (b"" if rank is None else b"[rank%d]: " % rank) + line + b"\n"
