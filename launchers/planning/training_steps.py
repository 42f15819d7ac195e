"""Count the optimizer steps of a plan, which are the horizon of the learning-rate schedule."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...recipes.flag_names import MAX_STEPS, normalize_flag
from ...recipes.model import Recipe
from ...record import record
from .plan import Plan, ceil_div


@record
class Horizon:
    """Optimizer steps of the whole training, with its examples and epochs."""

    examples: int
    epochs: float
    steps_per_epoch: int
    steps: int
    why: str


def compute_horizon(
    recipe: Recipe, plan: Plan, script: Path, user_arguments: Mapping[str, str | None]
) -> Horizon | None:
    """Count the steps of the recipe's training; None if its examples or its end are not known.

    Examples are counted in the training file, one per line. A maximum of steps above 0 takes
    precedence over epochs, as in the scripts. If the user passes a flag for it that the recipe does
    not declare, the script may or may not obey it, and the result is None.
    """
    flag, step_flag = recipe.data.train, recipe.flags.max_steps
    if flag is None or any(
        normalize_flag(name) in MAX_STEPS and name != step_flag for name in user_arguments
    ):
        return None
    max_steps = _number_passed(recipe, step_flag, user_arguments)
    epochs = _number_passed(recipe, recipe.flags.epochs, user_arguments)
    default = script.parent / recipe.data.folder / recipe.data.files[flag]
    path = Path(user_arguments[flag] or "") if flag in user_arguments else default
    lines = _count_lines(path)
    if lines is None or (max_steps or epochs) is None:
        return None
    examples = int(lines * recipe.data.train_share)
    per_epoch = steps_per_epoch(examples, plan)
    if max_steps is not None:
        epochs = max_steps / max(1, per_epoch)
    assert epochs is not None
    steps = int(per_epoch * epochs if max_steps is None else max_steps)
    by = "" if max_steps is None else f"by {step_flag}, "
    part = "" if recipe.data.train_share == 1 else f", of which {recipe.data.train_share:g} is used"
    why = (
        f"{steps} optimizer steps: {by}{epochs:g} x {per_epoch} for {examples} training examples "
        f"({lines} lines of {path.name}{part})"
    )
    return Horizon(examples, epochs, per_epoch, steps, why)


def steps_per_epoch(examples: int, plan: Plan) -> int:
    """Optimizer steps of one epoch, an incomplete last one included.

    Ranks either split each batch among them, or each goes through its own part of the examples,
    all padded to the length of the longest by torch's DistributedSampler.
    """
    if plan.shares:
        micro_steps = ceil_div(examples, plan.global_micro_batch)
    else:
        micro_steps = ceil_div(ceil_div(examples, plan.world), plan.per_device)
    return ceil_div(micro_steps, plan.accumulation)


def _count_lines(path: Path) -> int | None:
    """The lines of a file that are not blank, or None if it cannot be read."""
    try:
        with path.open("rb") as file:
            return sum(1 for line in file if line.strip())
    except OSError:
        return None


def _number_passed(
    recipe: Recipe, flag: str | None, user_arguments: Mapping[str, str | None]
) -> float | None:
    """The number passed for a flag by the user, or else by the recipe."""
    if flag is None:
        return None
    default = recipe.arguments.get(flag)
    return _positive_number(user_arguments.get(flag, None if default is None else str(default)))


def _positive_number(word: str | None) -> float | None:
    try:
        value = float(word or "")
    except ValueError:
        return None
    return value if value > 0 else None
