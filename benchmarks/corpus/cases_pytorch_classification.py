"""github.com/bearpaw/pytorch-classification."""

from __future__ import annotations

from pathlib import Path

from .case import Case

REPOSITORY = "bearpaw/pytorch-classification"
COMMIT = "24f1c456f48c78133088c4eefd182ca9e6199b03"


def train(home: Path) -> list[str]:
    """Its smallest model."""
    told = ["--arch=alexnet", "--lr=0.01", "--epochs=2", "--workers=0"]
    return [*told, "--train-batch=12", "--test-batch=8", "--manualSeed=3"]


CASES = (
    Case(
        "pytorch-classification/cifar.py",
        train,
        shims=("vision_stand_ins", "cuda_is_the_cpu", "views_of_old"),
        # What accuracy() gives has no dimension since torch 0.4.
        edits=(("prec1[0]", "prec1.item()"), ("prec5[0]", "prec5.item()")),
        names_output=False,
    ),
)
