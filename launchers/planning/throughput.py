"""How fast such trainings were on such cards, and how much memory they took: measured, and kept."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...record import as_dict, record
from ..state import keep

if TYPE_CHECKING:  # with pynvml
    from ..gpus.model import Gpu


@record
class Throughput:
    """What was measured of one training on one kind of cards in one precision.

    `seconds` are those of an optimizer step at this batch, `time` the same in proportion to what
    was expected; `memory` is what a card held in proportion to what was predicted, `power` the mean
    watts of a card. None stands for what is not known.
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
    """Those kept in the folder `state`, for a training on these cards; none: the CPU.

    `training` tells it by the name of its recipe and the length of its sequences.
    """

    state: Path
    training: tuple[str, ...]
    cards: tuple[Gpu, ...]

    def known(self, precision: str) -> Throughput | None:
        """What was measured last; what cannot be read is as good as not measured."""
        try:
            text = self._path(precision).read_text(encoding="utf-8")
            return Throughput(**json.loads(text)["pace"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep(self, pace: Throughput, precision: str) -> None:
        """Write it down. Raises OSError where that cannot be done."""
        content: Mapping[str, Any] = {
            "training": self.training,
            "cards": names(self.cards),
            "precision": precision,
            "pace": as_dict(pace),
        }
        keep(self._path(precision), json.dumps(content, indent=2) + "\n")

    def _path(self, precision: str) -> Path:
        words = [*self.training, *names(self.cards), precision]
        name = re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower())
        return self.state / "pace" / f"{name}.json"


def names(cards: Sequence[Gpu]) -> list[str]:
    """The kinds of cards, each once; no cards stand for the CPU."""
    return sorted({gpu.name for gpu in cards}) or ["CPU"]
