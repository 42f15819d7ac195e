"""What to change when a run is out of memory, one rung at a time.

The first rungs change nothing of what is computed but rounding: smaller batches that are
accumulated more often, to the same global batch, then activations that are computed again. The
last ones, numbers that the recipe allows to be halved, make another training of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from ...recipes.model import Recipe
from ...record import changed, record
from ..planning.plan import Plan, solve, solve_shared
from ..script.arguments import parse_flags
from ..script.flags import replaced

if TYPE_CHECKING:
    from .failure import RunFailure

CHECKPOINTING = "--gradient_checkpointing"


@record
class LaunchSettings:
    """What a run is told: its plan, the batch of its evaluations, and the user's arguments.

    `declared` are the flags that the script has, `told` those that it is given with their values,
    the user's own not among them.
    """

    recipe: Recipe
    plan: Plan
    extra: tuple[str, ...]
    declared: frozenset[str] = frozenset()
    told: Mapping[str, str | None] = MappingProxyType({})

    def value(self, flag: str) -> str | None:
        """What the script is given for a flag; None where it is not, or a switch."""
        mine = parse_flags(self.extra)
        said = self.recipe.arguments.get(flag)
        return mine.get(flag) or self.told.get(flag) or (None if said is None else str(said))

    def giving(self, numbers: Mapping[str, int]) -> LaunchSettings:
        """The same with these numbers, each where the flag is given now, or else told."""
        arguments = {flag: numbers.get(flag, was) for flag, was in self.recipe.arguments.items()}
        others = {f: str(n) for f, n in numbers.items() if f not in arguments}
        return changed(
            self,
            recipe=changed(self.recipe, arguments=arguments),
            extra=_with(self.extra, numbers),
            told={**self.told, **others},
        )

    def taking(self, per_device: int) -> LaunchSettings:
        """The same with at most so many examples per device, and the same global batch."""
        plan, flags = self.plan, self.recipe.flags
        solver = solve_shared if plan.shares else solve
        less = solver(plan.world, plan.global_batch, per_device)
        # What the plan as a whole was asked for stays what it is.
        less = changed(less, target=plan.target, exact=plan.exact, neighbours=plan.neighbours)
        numbers = {flags.train_batch: less.per_device}
        if flags.accumulation:
            numbers[flags.accumulation] = less.accumulation
        return changed(self, plan=less, extra=_with(self.extra, numbers))

    def evaluating(self, per_device: int) -> LaunchSettings:
        """The same with so many examples per device in evaluation."""
        sizes = changed(self.recipe.batch, eval_per_device=per_device)
        flag = self.recipe.flags.eval_batch
        return changed(
            self,
            recipe=changed(self.recipe, batch=sizes),
            extra=_with(self.extra, {flag: per_device} if flag else {}),
        )

    @property
    def eval_per_device(self) -> int:
        """Examples per device in evaluation."""
        mine = _number(parse_flags(self.extra).get(self.recipe.flags.eval_batch or ""))
        return mine or self.recipe.batch.eval_per_device


@record
class Rung:
    """A rung down: the setting there, what changed in words, and whether it is another training.

    Another training does not go on from the checkpoints of the one before.
    """

    setting: LaunchSettings
    said: str
    anew: bool = False


def down(setting: LaunchSettings, failure: RunFailure) -> Rung | None:
    """The next setting that takes less memory, where there is one."""
    rungs = [_evaluation] if failure.in_evaluation else []
    steps = (rung(setting) for rung in [*rungs, *RUNGS])
    return next((step for step in steps if step is not None), None)


def _evaluation(now: LaunchSettings) -> Rung | None:
    """Half the batch of evaluations: no gradient depends on it."""
    half = now.eval_per_device // 2 if now.recipe.flags.eval_batch else 0
    said = f"{half} examples per device in evaluation instead of {now.eval_per_device}"
    return Rung(now.evaluating(half), said) if half else None


def _batch(now: LaunchSettings) -> Rung | None:
    """The largest batch up to half of this one whose accumulation gives the same global batch."""
    plan = now.plan
    if plan.per_device < 2 or now.recipe.flags.accumulation is None:
        return None
    less = now.taking(plan.per_device // 2)
    said = (
        f"{less.plan.per_device} per device x {less.plan.accumulation} accumulated instead of "
        f"{plan.per_device} x {plan.accumulation}, global batch {less.plan.global_batch} as before"
    )
    return Rung(less, said)


def _checkpointing(now: LaunchSettings) -> Rung | None:
    if CHECKPOINTING not in now.declared or CHECKPOINTING in parse_flags(now.extra):
        return None
    if CHECKPOINTING in now.told or CHECKPOINTING in now.recipe.arguments:
        return None
    told = {**now.told, CHECKPOINTING: None}
    return Rung(changed(now, told=told), f"{CHECKPOINTING}: activations are computed again")


def _number_allowed(now: LaunchSettings) -> Rung | None:
    for flag, least in now.recipe.out_of_memory.items():
        number = _number(now.value(flag))
        less = max((number or 0) // 2, least)
        if number and less < number and flag in now.declared:
            said = f"{flag} {less} instead of {number}, as the recipe allows: from the start"
            return Rung(now.giving({flag: less}), said, anew=True)
    return None


RUNGS: Sequence[Callable[[LaunchSettings], Rung | None]] = (_batch, _checkpointing, _number_allowed)


def _with(extra: tuple[str, ...], numbers: Mapping[str, int]) -> tuple[str, ...]:
    """The user's arguments with these in place of theirs; what they did not say stays unsaid."""
    words: Sequence[str] = extra
    for flag, number in numbers.items():
        if flag in parse_flags(extra):
            words = replaced(words, flag, str(number))
    return tuple(words)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None
