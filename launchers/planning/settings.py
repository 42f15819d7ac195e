"""What a plan says beyond the batch: precision, loader workers, horizon, and flags to pass for it.

A flag is passed only to a script that declares it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...recipes.model import Recipe
from ...record import as_dict, record
from ..script.source import declared
from . import precision as precisions
from .plan import Plan
from .precision import Precision
from .training_steps import Horizon, horizon

if TYPE_CHECKING:
    from ..gpus.model import Gpu

WORKERS_FLAG = "--dataloader_num_workers"
MOST_WORKERS = 8
"""Loader workers per process beyond which a card is hardly ever kept waiting."""


@record
class Settings:
    """The parts of a plan that are not its batch; `arguments` are flags with their values.

    `workers` is None where the script cannot be told, `horizon` where it is not known.
    """

    precision: Precision
    workers: int | None
    horizon: Horizon | None
    arguments: dict[str, str | None]

    @property
    def said(self) -> list[str]:
        """One sentence on each, without its full stop."""
        told = [f"{self.precision.name}: {self.precision.why}"]
        if self.workers is not None:
            told.append(f"loader workers per process: {self.workers}")
        return [*told, self.horizon.why] if self.horizon else told

    def facts(self) -> dict[str, Any]:
        """As JSON can hold it."""
        known = as_dict(self)
        del known["arguments"]
        return known


def settings(
    recipe: Recipe,
    script: Path,
    plan: Plan,
    cards: Sequence[Gpu],
    *,
    cores: int,
    precision: str = "auto",
    mine: Mapping[str, str | None] | None = None,
) -> Settings:
    """Precision, workers and horizon for `script` on `cards` (none: the CPU) with so many cores.

    `mine` are the user's own arguments for the script.

    Raises:
        InputError: a precision that the script cannot be told.

    """
    mine = {} if mine is None else mine
    flags = declared(script)
    own = recipe.model.precision if recipe.model else ""
    chosen = precisions.decide(script, precision, cards, flags, mine, own)
    workers = workers_per_process(plan.world, cores) if WORKERS_FLAG in flags else None
    arguments: dict[str, str | None] = {
        flag: None if value is True else str(value)
        for flag, value in recipe.if_declared.items()
        if flag in flags
    }
    if chosen.told and precisions.FLAG not in mine:
        arguments[precisions.FLAG] = precisions.VALUES.get(chosen.name, chosen.name)
    if workers is not None:
        arguments[WORKERS_FLAG] = str(workers)
        given = mine.get(WORKERS_FLAG) or ""
        workers = int(given) if given.isdigit() else workers
    return Settings(chosen, workers, horizon(recipe, plan, script, mine), arguments)


def workers_per_process(world: int, cores: int) -> int:
    """A process's share of the cores less the one it runs on, at most 8."""
    return max(0, min(MOST_WORKERS, cores // world - 1))
