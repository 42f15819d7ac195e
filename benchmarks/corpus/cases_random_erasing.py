"""github.com/zhunzhong07/Random-Erasing."""

from __future__ import annotations

from pathlib import Path

from .case import Case

REPOSITORY = "zhunzhong07/Random-Erasing"
COMMIT = "ed05424dcb2fd502eafb41b2b1151fb7cd16cbcd"
SHIMS = ("vision_stand_ins", "cuda_is_the_cpu", "views_of_old", "norms_without_batch")


def train(home: Path) -> list[str]:
    """Its smallest residual network."""
    told = ["--arch=resnet", "--depth=8", "--lr=0.01", "--epochs=2", "--workers=0", "--p=0.5"]
    return [*told, "--train-batch=12", "--test-batch=8", "--manualSeed=3"]


def train_wide(home: Path) -> list[str]:
    """The one model whose depth is a whole number in Python 3."""
    told = ["--arch=wrn", "--depth=10", "--widen-factor=1"]
    return [*told, *train(home)[2:]]


CASES = (
    Case("Random-Erasing/cifar.py", train, shims=SHIMS, names_output=False),
    Case("Random-Erasing/fashionmnist.py", train_wide, shims=SHIMS, names_output=False),
)
