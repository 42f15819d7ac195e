"""github.com/chengyangfu/pytorch-vgg-cifar10."""

from __future__ import annotations

from pathlib import Path

from .case import Case

REPOSITORY = "chengyangfu/pytorch-vgg-cifar10"
COMMIT = "9c5da95297d2e49d547c92cb8f0ffdd448262c8a"


def train(home: Path) -> list[str]:
    """Its smallest model."""
    told = ["--arch=vgg11", "--lr=0.01", "--epochs=1", "--workers=0"]
    return [*told, "--batch-size=12", "--print-freq=1", "--cpu", "--save-dir=saved"]


CASES = (
    Case(
        "pytorch-vgg-cifar10/main.py",
        train,
        shims=("vision_stand_ins", "views_of_old"),
        names_output=False,
        seed=0,
    ),
)
