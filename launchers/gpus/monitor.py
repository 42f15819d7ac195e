"""Sample the cards' utilization, memory, power and temperature during a run."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pynvml

from ..private_files import open_private

SAMPLES_FILE = "gpus.jsonl"
INTERVAL = 1.0  # seconds


class Monitor:
    """Write a JSON line per sample: {"t": seconds, "gpus": [{"index": …}, …]}, or with "lost".

    Cards are identified by their indices, as in nvidia-smi. An NVML error never ends the run: it is
    written as the sample's "lost", and the next sample initializes NVML again. `latest` is the last
    sample of each card.
    """

    def __init__(self, path: Path, cards: Sequence[int], interval: float = INTERVAL) -> None:
        self.peaks: dict[int, dict[str, float]] = {}
        self.latest: list[dict[str, Any]] = []
        self._started = False
        self.looks = self.failed = 0
        self.last_error = ""
        self._path, self._cards, self._interval = path, cards, interval
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_ended, daemon=True)
        self._began = time.monotonic()

    def __enter__(self) -> Monitor:
        if self._cards:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._cards:
            # With a time limit: a call into a broken driver may never return.
            self._thread.join(5.0)
        if not self._thread.is_alive():
            self._shut_down()

    def facts(self) -> dict[str, Any]:
        """Plain data for the run record: samples, failures, and the peak of each quantity."""
        error = {"last_error": self.last_error} if self.last_error else {}
        return {
            "looks": self.looks,
            "failed": self.failed,
            **error,
            "peaks": {str(index): dict(peaks) for index, peaks in self.peaks.items()},
        }

    def _sample_until_ended(self) -> None:
        with (
            contextlib.suppress(OSError),
            open_private(self._path, "ab") as file,
        ):
            while not self._ended.is_set():
                sample = {"t": round(time.monotonic() - self._began, 2), **self._sample()}
                # A full disk ends neither the run nor the sampling.
                with contextlib.suppress(OSError):
                    file.write(f"{json.dumps(sample)}\n".encode())
                    file.flush()
                self._ended.wait(self._interval)

    def _sample(self) -> dict[str, Any]:
        self.looks += 1
        try:
            if not self._started:  # only once: it takes a second without persistence mode
                pynvml.nvmlInit()
                self._started = True
            self.latest = [self._card(index) for index in self._cards]
            return {"gpus": self.latest}
        except pynvml.NVMLError as error:
            self._shut_down()
            self.failed += 1
            self.last_error = str(error)
            return {"lost": str(error)}

    def _shut_down(self) -> None:
        if self._started:
            self._started = False
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()

    def _card(self, index: int) -> dict[str, Any]:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        values: dict[str, float] = {"memory_used": int(memory.used)}
        for name, query in QUERIES.items():
            with contextlib.suppress(pynvml.NVMLError_NotSupported):
                values[name] = query(handle)
        peaks = self.peaks.setdefault(index, {})
        for name, value in values.items():
            peaks[name] = max(value, peaks.get(name, value))
        return {"index": index, **values}


def _utilization(handle: Any) -> float:
    """In per cent."""
    return int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)


def _power(handle: Any) -> float:
    """In watts."""
    return float(pynvml.nvmlDeviceGetPowerUsage(handle)) / 1000


def _temperature(handle: Any) -> float:
    """In degrees Celsius."""
    return int(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))


QUERIES = {"utilization": _utilization, "power": _power, "temperature": _temperature}
