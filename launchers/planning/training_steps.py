"""The learning rate's horizon: how many optimizer steps a plan takes, where that can be known."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...recipes.flag_names import MAX_STEPS, bare
from ...recipes.model import Recipe
from ...record import record
from .plan import Plan


@record
class Horizon:
    """Optimizer steps of the whole training, and the examples and epochs that they are."""

    examples: int
    epochs: float
    steps_per_epoch: int
    steps: int
    why: str


def horizon(
    recipe: Recipe, plan: Plan, script: Path, mine: Mapping[str, str | None]
) -> Horizon | None:
    """The horizon of the recipe's training, or None where its examples or its end are not known.

    Examples are counted in the training file, a line each; `mine` are the user's own arguments. A
    number of steps above 0 goes before epochs, as in the scripts; where a user passes one of which
    the recipe does not say that the script obeys it, nothing is known.
    """
    flag, ends = recipe.data.train, recipe.flags.max_steps
    if flag is None or any(bare(name) in MAX_STEPS and name != ends for name in mine):
        return None
    limit, epochs = (_said(recipe, name, mine) for name in (ends, recipe.flags.epochs))
    place = script.parent / recipe.data.folder / recipe.data.files[flag]
    path = Path(mine[flag] or "") if flag in mine else place
    lines = _lines(path)
    if lines is None or (limit or epochs) is None:
        return None
    examples = int(lines * recipe.data.train_share)
    per_epoch = steps_per_epoch(examples, plan)
    if limit is not None:
        epochs = limit / max(1, per_epoch)
    assert epochs is not None
    steps = int(per_epoch * epochs if limit is None else limit)
    by = "" if limit is None else f"by {ends}, "
    part = "" if recipe.data.train_share == 1 else f", of which {recipe.data.train_share:g} is used"
    why = (
        f"{steps} optimizer steps: {by}{epochs:g} x {per_epoch} for {examples} training examples "
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


def _said(recipe: Recipe, flag: str | None, mine: Mapping[str, str | None]) -> float | None:
    """What a flag is given, by the user or else by the recipe."""
    if flag is None:
        return None
    own = recipe.arguments.get(flag)
    return _number(mine.get(flag, None if own is None else str(own)))


def _number(word: str | None) -> float | None:
    try:
        value = float(word or "")
    except ValueError:
        return None
    return value if value > 0 else None
