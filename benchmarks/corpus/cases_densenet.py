"""github.com/andreasveit/densenet-pytorch."""

from __future__ import annotations

from pathlib import Path

from .case import Case

REPOSITORY = "andreasveit/densenet-pytorch"
COMMIT = "63152f4a40644b62717749536ed2e011c6e4d9ab"


def train(home: Path) -> list[str]:
    """Ten layers."""
    return ["--layers=10", "--lr=0.01", "--epochs=2", "--batch-size=12", "--print-freq=1"]


CASES = (
    Case(
        "densenet-pytorch/train.py",
        train,
        shims=("vision_stand_ins", "cuda_is_the_cpu", "views_of_old", "norms_without_batch"),
        # What accuracy() gives has no dimension since torch 0.4.
        edits=(("prec1[0]", "prec1.item()"),),
        names_output=False,
        seed=0,
    ),
)
