"""The learning rate's horizon: how many optimizer steps a plan takes, where that can be known."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs

from ..recipes.model import Recipe
from .plan import Plan


@attrs.frozen
class Horizon:
    """Optimizer steps of the whole training, and the examples and epochs they come from."""

    examples: int
    epochs: float
    steps_per_epoch: int
    steps: int
    why: str


def horizon(
    recipe: Recipe, plan: Plan, script: Path, mine: Mapping[str, str | None]
) -> Horizon | None:
    """The horizon of the recipe's training, or None where its examples or epochs are not known.

    Examples are counted in the training file, a line each; `mine` are the user's own arguments.
    """
    flag = recipe.data.train
    if flag is None or recipe.flags.epochs is None:
        return None
    own = recipe.arguments.get(recipe.flags.epochs)
    epochs = _number(mine.get(recipe.flags.epochs, None if own is None else str(own)))
    place = script.parent / recipe.data.folder / recipe.data.files[flag]
    path = Path(mine[flag] or "") if flag in mine else place
    lines = _lines(path)
    if epochs is None or lines is None:
        return None
    examples = int(lines * recipe.data.train_share)
    per_epoch = steps_per_epoch(examples, plan)
    steps = int(per_epoch * epochs)
    part = "" if recipe.data.train_share == 1 else f", of which {recipe.data.train_share:g} is used"
    why = (
        f"{steps} optimizer steps: {epochs:g} x {per_epoch} for {examples} training examples "
        f"({lines} lines of {path.name}{part})"
    )
    return Horizon(examples, epochs, per_epoch, steps, why)


def steps_per_epoch(examples: int, plan: Plan) -> int:
    """Optimizer steps of one epoch, the last of which may be a shorter one.

    Ranks either share batches out, or each goes through its own part of the examples, which
    torch's DistributedSampler makes as long as the longest.
    """
    if plan.shares:
        micro_steps = _up(examples, plan.together)
    else:
        micro_steps = _up(_up(examples, plan.world), plan.per_device)
    return _up(micro_steps, plan.accumulation)


def _up(number: int, divisor: int) -> int:
    return -(-number // divisor)


def _lines(path: Path) -> int | None:
    try:
        with path.open("rb") as file:
            return sum(1 for line in file if line.strip())
    except OSError:
        return None


def _number(word: str | None) -> float | None:
    try:
        value = float(word or "")
    except ValueError:
        return None
    return value if value > 0 else None
