"""Measured step times and memory of earlier runs, stored per training, cards and precision."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...record import as_dict, record
from ..state import write_atomically
from ..state_files import load
from .probed import ProbedBatch

if TYPE_CHECKING:  # with pynvml
    from ..gpus.model import Gpu

_FOLDER = "pace"


@record
class Throughput:
    """Measurements of one training on one kind of cards in one precision.

    `seconds` is the time of an optimizer step at this batch, `time` its ratio to the expected one;
    `memory` is the ratio of a card's measured memory to the predicted one, `power` the mean power
    of a card in watts. None means not measured. `probed` are the batches that a probe took steps
    of where no memory is predicted.
    """

    when: str
    world: int
    per_device: int
    accumulation: int
    seconds: float
    time: float | None = None
    memory: float | None = None
    power: float | None = None
    probed: tuple[ProbedBatch, ...] = ()


@record
class ThroughputHistory:
    """The measurements stored in the folder `state` for a training on these cards (none: the CPU).

    `training` says what it is in words: its recipe's name, the length of its sequences. `identity`
    is all that tells it from others: two recipes may have one name.
    """

    state: Path
    training: tuple[str, ...]
    cards: tuple[Gpu, ...]
    identity: str = ""

    def latest(self, precision: str) -> Throughput | None:
        """The latest measurement, or None if there is none that can be read."""
        if not (self.state / _FOLDER).is_dir() or not (path := self._path(precision)).exists():
            return None
        import attrs  # not needed before anything was measured

        from .stored_throughput import StoredThroughput

        stored = load(path, StoredThroughput, "pace")
        if stored is None:
            return None
        plain = attrs.asdict(stored)
        return Throughput(**{**plain, "probed": tuple(ProbedBatch(**x) for x in plain["probed"])})

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
        import hashlib  # loads OpenSSL, which most commands do not need

        words = [*self.training, *_card_names(self.cards), precision]
        digest = hashlib.sha256(json.dumps([*words, self.identity]).encode()).hexdigest()[:12]
        name = re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower())
        return self.state / _FOLDER / f"{name[:160]}-{digest}.json"


def _card_names(cards: Sequence[Gpu]) -> list[str]:
    """The kinds of cards, each once; "CPU" without any."""
    return sorted({gpu.name for gpu in cards}) or ["CPU"]
