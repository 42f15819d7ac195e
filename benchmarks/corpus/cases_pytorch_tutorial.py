"""github.com/yunjey/pytorch-tutorial."""

from __future__ import annotations

from pathlib import Path

from .case import Case

REPOSITORY = "yunjey/pytorch-tutorial"
COMMIT = "0500d3df5a2a8080ccfccbc00aca0eacc21818db"
BASIC, MORE = "pytorch-tutorial/tutorials/01-basics/", "pytorch-tutorial/tutorials/02-intermediate/"


def train(home: Path) -> list[str]:
    """They have no arguments but those of the capability."""
    return []


def lesson(folder: str, epochs: int, rate: float, *shims: str) -> Case:
    """A script whose settings are constants, with a small batch and a horizon."""
    return Case(
        f"{folder}/main.py",
        train,
        capabilities=("flags",),
        shims=("vision_stand_ins", *shims),
        edits=(
            (f"num_epochs = {epochs}", "num_epochs = 2"),
            ("batch_size = 100", "batch_size = 12"),
            (f"learning_rate = {rate}", "learning_rate = 0.0003"),
        ),
        names_output=False,
        seed=0,
    )


CASES = (
    lesson(f"{BASIC}feedforward_neural_network", 5, 0.001),
    lesson(f"{BASIC}logistic_regression", 5, 0.001),
    lesson(f"{MORE}bidirectional_recurrent_neural_network", 2, 0.003),
    lesson(f"{MORE}convolutional_neural_network", 5, 0.001, "norms_without_batch"),
)
