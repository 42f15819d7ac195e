"""github.com/HobbitLong/SupContrast."""

from __future__ import annotations

from pathlib import Path

from .case import Case, words

REPOSITORY = "HobbitLong/SupContrast"
COMMIT = "66a8fe53880d6a1084b2e4e0db0a019024d6d41a"


def train(home: Path) -> list[str]:
    """The README's command, smaller."""
    told = {"batch_size": 12, "learning_rate": 0.05, "epochs": 2, "num_workers": 0}
    return words("cosine", **told, model="resnet18", print_freq=1)


SHIMS = ("vision_stand_ins", "cuda_is_the_cpu", "views_of_old", "norms_without_batch")
CASES = (
    Case("SupContrast/main_ce.py", train, shims=SHIMS, names_output=False, seed=0),
    Case(
        "SupContrast/main_supcon.py",
        train,
        unsafe=True,
        shims=SHIMS,
        defect="the other pictures of the batch are its negatives, of which each rank has a part;"
        " its loss sorts their pairs, which patch leaves alone and says (DF307)",
        names_output=False,
        seed=0,
    ),
)
