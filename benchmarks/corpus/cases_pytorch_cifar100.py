"""github.com/weiaicunzai/pytorch-cifar100."""

from __future__ import annotations

from pathlib import Path

from .case import Case

REPOSITORY = "weiaicunzai/pytorch-cifar100"
COMMIT = "11d8418f415b261e4ae3cb1ffe20d06ec95b98e4"


def train(home: Path) -> list[str]:
    """One of its small models."""
    return ["-net", "squeezenet", "-b", "12", "-lr", "0.01"]


CASES = (
    Case(
        "pytorch-cifar100/train.py",
        train,
        shims=("vision_stand_ins", "norms_without_batch"),
        edits=(("range(1, settings.EPOCH + 1)", "range(1, 3)"),),
        names_output=False,
        seed=0,
    ),
)
