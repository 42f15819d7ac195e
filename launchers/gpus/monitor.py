"""The cards while a run goes on: once a second their use, memory, power and temperature."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pynvml

SAMPLES = "gpus.jsonl"
EVERY = 1.0  # seconds


class Monitor:
    """Writes a line a second to a file: {"t": seconds, "gpus": [{"index": …}, …]}, or its "lost".

    Cards are told by their indices, as in nvidia-smi. Whatever NVML says or stops saying, the run
    goes on: a look that fails is written down as such, and the next one starts NVML anew.
    """

    def __init__(self, path: Path, cards: Sequence[int], every: float = EVERY) -> None:
        self.peaks: dict[int, dict[str, float]] = {}
        self._started = False
        self.looks = self.failed = 0
        self.last_error = ""
        self._path, self._cards, self._every = path, cards, every
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._began = time.monotonic()

    def __enter__(self) -> Monitor:
        if self._cards:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._cards:
            # Not for ever: a call into a driver that is out of order may never come back.
            self._thread.join(5.0)
        if not self._thread.is_alive():
            self._shut()

    def facts(self) -> dict[str, Any]:
        """For the record: how many looks there were, how many failed, the most of each quantity."""
        error = {"last_error": self.last_error} if self.last_error else {}
        return {
            "looks": self.looks,
            "failed": self.failed,
            **error,
            "peaks": {str(index): dict(peaks) for index, peaks in self.peaks.items()},
        }

    def _watch(self) -> None:
        with contextlib.suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            while not self._ended.is_set():
                sample = {"t": round(time.monotonic() - self._began, 2), **self._look()}
                # A full disk ends neither the run nor the looking.
                with contextlib.suppress(OSError):
                    file.write(json.dumps(sample) + "\n")
                    file.flush()
                self._ended.wait(self._every)

    def _look(self) -> dict[str, Any]:
        self.looks += 1
        try:
            if not self._started:  # once: without persistence mode it takes a second
                pynvml.nvmlInit()
                self._started = True
            return {"gpus": [self._card(index) for index in self._cards]}
        except pynvml.NVMLError as error:
            self._shut()
            self.failed += 1
            self.last_error = str(error)
            return {"lost": str(error)}

    def _shut(self) -> None:
        if self._started:
            self._started = False
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()

    def _card(self, index: int) -> dict[str, Any]:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        found: dict[str, float] = {"memory_used": int(memory.used)}
        for name, question in QUESTIONS.items():
            with contextlib.suppress(pynvml.NVMLError_NotSupported):
                found[name] = question(handle)
        peaks = self.peaks.setdefault(index, {})
        for name, value in found.items():
            peaks[name] = max(value, peaks.get(name, value))
        return {"index": index, **found}


def _utilization(handle: Any) -> float:
    """In per cent."""
    return int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)


def _power(handle: Any) -> float:
    """In watts."""
    return float(pynvml.nvmlDeviceGetPowerUsage(handle)) / 1000


def _temperature(handle: Any) -> float:
    """In degrees Celsius."""
    return int(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))


QUESTIONS = {"utilization": _utilization, "power": _power, "temperature": _temperature}
