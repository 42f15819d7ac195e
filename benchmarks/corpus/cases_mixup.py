"""github.com/facebookresearch/mixup-cifar10."""

from __future__ import annotations

from pathlib import Path

from .case import Case

REPOSITORY = "facebookresearch/mixup-cifar10"
COMMIT = "eaff31ab397a90fbc0a4aac71fb5311144b3608b"


def train(home: Path) -> list[str]:
    """The smallest of its models, without chance in how examples mix."""
    return ["--model=LeNet", "--lr=0.01", "--batch-size=12", "--epoch=2", "--seed=3", "--alpha=0"]


CASES = (
    Case(
        "mixup-cifar10/train.py",
        train,
        shims=("vision_stand_ins", "terminal_of_80_columns"),
        edits=(("batch_size=100", "batch_size=8"),),
        names_output=False,
    ),
)
