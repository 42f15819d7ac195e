"""github.com/meliketoy/wide-resnet.pytorch."""

from __future__ import annotations

from pathlib import Path

from .case import Case, words

REPOSITORY = "meliketoy/wide-resnet.pytorch"
COMMIT = "292b3ede0651e349dd566f9c23408aa572f1bd92"


def train(home: Path) -> list[str]:
    """The smallest of its models."""
    return words("", net_type="lenet", lr=0.01)


CASES = (
    Case(
        "wide-resnet.pytorch/main.py",
        train,
        capabilities=("flags",),
        shims=("vision_stand_ins",),
        edits=(
            (
                "cf.start_epoch, cf.num_epochs, cf.batch_size, cf.optim_type",
                "cf.start_epoch, 2, 12, cf.optim_type",
            ),
            ("batch_size=batch_size, shuffle=True", "batch_size=12, shuffle=True"),
        ),
        names_output=False,
        seed=0,
    ),
)
