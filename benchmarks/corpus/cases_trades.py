"""github.com/yaodongyu/TRADES."""

from __future__ import annotations

from pathlib import Path

from .case import Case

REPOSITORY = "yaodongyu/TRADES"
COMMIT = "6e8e11b7c281371c2f027ffadfbaea80361f09de"


def train(home: Path) -> list[str]:
    """The README's command, smaller."""
    return ["--epochs=2", "--batch-size=12", "--test-batch-size=8", "--save-freq=1"]


CASES = (
    Case(
        "TRADES/train_trades_mnist.py",
        train,
        shims=("vision_stand_ins", "cuda_is_the_cpu"),
        edits=(("default=40", "default=2"),),
        defect="each attack begins at random points, which a rank draws for its own examples",
        names_output=False,
    ),
)
