"""Measured step times and memory of earlier runs, stored per training, cards and precision."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...record import as_dict, record
from ..state import write_atomically

if TYPE_CHECKING:  # with pynvml
    from ..gpus.model import Gpu


@record
class Throughput:
    """Measurements of one training on one kind of cards in one precision.

    `seconds` is the time of an optimizer step at this batch, `time` its ratio to the expected one;
    `memory` is the ratio of a card's measured memory to the predicted one, `power` the mean power
    of a card in watts. None means not measured.
    """

    when: str
    world: int
    per_device: int
    accumulation: int
    seconds: float
    time: float | None = None
    memory: float | None = None
    power: float | None = None


@record
class ThroughputHistory:
    """The measurements stored in the folder `state` for a training on these cards (none: the CPU).

    `training` identifies it by the name of its recipe and the length of its sequences.
    """

    state: Path
    training: tuple[str, ...]
    cards: tuple[Gpu, ...]

    def latest(self, precision: str) -> Throughput | None:
        """The latest measurement, or None if there is none that can be read."""
        try:
            text = self._path(precision).read_text(encoding="utf-8")
            return Throughput(**json.loads(text)["pace"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def store(self, pace: Throughput, precision: str) -> None:
        """Store a measurement. Raises OSError if it cannot be written."""
        content: Mapping[str, Any] = {
            "training": self.training,
            "cards": _card_names(self.cards),
            "precision": precision,
            "pace": as_dict(pace),
        }
        write_atomically(self._path(precision), json.dumps(content, indent=2) + "\n")

    def _path(self, precision: str) -> Path:
        words = [*self.training, *_card_names(self.cards), precision]
        name = re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower())
        return self.state / "pace" / f"{name}.json"


def _card_names(cards: Sequence[Gpu]) -> list[str]:
    """The kinds of cards, each once; "CPU" without any."""
    return sorted({gpu.name for gpu in cards}) or ["CPU"]
