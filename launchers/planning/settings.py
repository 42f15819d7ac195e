"""Choose the settings of a run other than its batch: precision, loader workers, script flags.

A flag is passed only to a script that declares it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...recipes.model import Recipe
from ...record import as_dict, record
from ..memory.step import FSDP_FLAG, is_sharded
from ..script.source import declared_flag_names
from . import precision as precisions
from .plan import Plan
from .precision import Precision
from .training_steps import Horizon, compute_horizon

if TYPE_CHECKING:
    from ..gpus.model import Gpu

WORKERS_FLAG = "--dataloader_num_workers"
MOST_WORKERS = 8
"""Loader workers per process; with more, a card hardly ever waits less."""


@record
class Settings:
    """The parts of a plan that are not its batch; `arguments` are flags with their values.

    `workers` is None if the script has no flag for it, `horizon` if it is not known. `sharded_over`
    is how many ranks weights are divided among, 0 where each holds all.
    """

    precision: Precision
    workers: int | None
    horizon: Horizon | None
    arguments: dict[str, str | None]
    sharded_over: int = 0

    @property
    def summary(self) -> list[str]:
        """One sentence on each setting, without its full stop."""
        sentences = [f"{self.precision.name}: {self.precision.why}"]
        if self.workers is not None:
            sentences.append(f"loader workers per process: {self.workers}")
        if self.sharded_over:
            sentences.append(
                f"{FSDP_FLAG}: {self.sharded_over} ranks divide weights, gradients and optimizer "
                "states; each holds all weights while it evaluates"
            )
        return [*sentences, self.horizon.why] if self.horizon else sentences

    def facts(self) -> dict[str, Any]:
        """The settings as plain data for JSON, without the arguments."""
        plain = as_dict(self)
        del plain["arguments"]
        return plain


def choose_settings(
    recipe: Recipe,
    script: Path,
    plan: Plan,
    cards: Sequence[Gpu],
    *,
    cores: int,
    precision: str = "auto",
    user_arguments: Mapping[str, str | None] | None = None,
) -> Settings:
    """Choose precision, workers and horizon for `script` on `cards` (none: the CPU).

    `cores` is the number of CPU cores for all processes; `user_arguments` are the user's own
    arguments for the script.

    Raises:
        InputError: the script has no flag for the precision.

    """
    user_arguments = {} if user_arguments is None else user_arguments
    flags = declared_flag_names(script)
    built_in = recipe.model.precision if recipe.model else ""
    chosen = precisions.choose_precision(script, precision, cards, flags, user_arguments, built_in)
    workers = workers_per_process(plan.world, cores) if WORKERS_FLAG in flags else None
    arguments: dict[str, str | None] = {
        flag: None if value is True else str(value)
        for flag, value in recipe.if_declared.items()
        if flag in flags
    }
    if chosen.told and precisions.AMP_FLAG not in user_arguments:
        arguments[precisions.AMP_FLAG] = precisions.AMP_VALUES.get(chosen.name, chosen.name)
    if workers is not None:
        arguments[WORKERS_FLAG] = str(workers)
        passed = user_arguments.get(WORKERS_FLAG) or ""
        workers = int(passed) if passed.isdigit() else workers
    horizon = compute_horizon(recipe, plan, script, user_arguments)
    is_divided = is_sharded({**recipe.arguments, **user_arguments}, plan.world)
    sharded_over = plan.world if is_divided else 0
    return Settings(chosen, workers, horizon, arguments, sharded_over)


def workers_per_process(world: int, cores: int) -> int:
    """A process's share of the cores, less the one it runs on, at most MOST_WORKERS."""
    return max(0, min(MOST_WORKERS, cores // world - 1))
