"""github.com/kuangliu/pytorch-cifar."""

from __future__ import annotations

from pathlib import Path

from .case import Case, words

REPOSITORY = "kuangliu/pytorch-cifar"
COMMIT = "49b7aa97b0c12fe0d4e054670403a16b6b834ddd"
SHIMS = ("vision_stand_ins", "terminal_of_80_columns")


def train(home: Path) -> list[str]:
    """The README's command."""
    return words("", lr=0.01)


def model(text: str, epochs: int = 2) -> tuple[tuple[str, str], ...]:
    """Edits that choose one of the models that the script lists, a small batch and a horizon."""
    return (
        ("net = SimpleDLA()", f"net = {text}"),
        ("batch_size=128", "batch_size=12"),
        ("start_epoch+200", f"start_epoch+{epochs}"),
    )


CASES = (
    Case(
        "pytorch-cifar/main.py",
        train,
        capabilities=("flags",),
        shims=SHIMS,
        edits=model("LeNet()"),
        names_output=False,
        seed=0,
    ),
)
