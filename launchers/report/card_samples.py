"""Read the samples of a run's cards: memory, utilization and power over its time."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import attrs

from ..gpus.monitor import SAMPLES_FILE

MAX_SAMPLES = 2000
"""The most samples of a card that are kept: a day has 86,400."""


@attrs.define
class CardSamples:
    """The samples of a card: seconds from the start, and each quantity, None where it is unknown.

    Memory is in bytes, utilization in per cent, power in watts.
    """

    seconds: list[float] = attrs.field(factory=list)
    memory: list[float | None] = attrs.field(factory=list)
    utilization: list[float | None] = attrs.field(factory=list)
    power: list[float | None] = attrs.field(factory=list)

    @property
    def peak_memory(self) -> float | None:
        """The most memory in use, in bytes; None if no sample says it."""
        return max((used for used in self.memory if used is not None), default=None)

    @property
    def mean_utilization(self) -> float | None:
        """In per cent."""
        return _mean(self.utilization)

    @property
    def mean_power(self) -> float | None:
        """In watts."""
        return _mean(self.power)


def read_samples(folder: Path) -> dict[int, CardSamples]:
    """The samples in a run folder, by card; none where it has none. A torn line is passed over."""
    found: dict[int, CardSamples] = defaultdict(CardSamples)
    try:
        lines = (folder / SAMPLES_FILE).read_text("utf-8", "replace").splitlines()
    except OSError:
        return {}
    for line in lines[:: 1 + len(lines) // MAX_SAMPLES]:
        try:
            sample = json.loads(line)
            for card in sample.get("gpus", ()):
                one = found[int(card["index"])]
                one.seconds.append(float(sample["t"]))
                one.memory.append(card.get("memory_used"))
                one.utilization.append(card.get("utilization"))
                one.power.append(card.get("power"))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return dict(found)


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
