"""Lower the memory of a run after an OOM, one rung at a time.

The first rungs compute the same up to rounding: smaller batches with more accumulation, to the same
global batch, then gradient checkpointing, then FSDP. The last ones halve numbers that the recipe
allows to be halved, which makes it another training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from ...recipes.model import Recipe
from ...record import record, replace
from ..memory.step import FSDP_FLAG
from ..planning.plan import Plan, solve, solve_shared
from ..script.arguments import parse_flags
from ..script.flags import set_flag

if TYPE_CHECKING:
    from .failure import RunFailure

CHECKPOINTING = "--gradient_checkpointing"
COMPILE = "--compile"


@record
class LaunchSettings:
    """The settings of a run: its recipe, its plan and the arguments for its script.

    `extra` are the user's own arguments, `added_flags` the flags and values that ddpfix adds to
    those of the recipe and the batch. `declared_flags` are the flags that the script has.
    """

    recipe: Recipe
    plan: Plan
    extra: tuple[str, ...]
    declared_flags: frozenset[str] = frozenset()
    added_flags: Mapping[str, str | None] = MappingProxyType({})

    def value(self, flag: str) -> str | None:
        """The value that the script gets for a flag; None without the flag, or for a switch."""
        overrides = parse_flags(self.extra)
        default = self.recipe.arguments.get(flag)
        return (
            overrides.get(flag)
            or self.added_flags.get(flag)
            or (None if default is None else str(default))
        )

    def with_numbers(self, numbers: Mapping[str, int]) -> LaunchSettings:
        """The settings with these numbers, each where its flag is set now, else added."""
        arguments = {flag: numbers.get(flag, old) for flag, old in self.recipe.arguments.items()}
        others = {f: str(n) for f, n in numbers.items() if f not in arguments}
        return replace(
            self,
            recipe=replace(self.recipe, arguments=arguments),
            extra=_with(self.extra, numbers),
            added_flags={**self.added_flags, **others},
        )

    def with_batch(self, per_device: int) -> LaunchSettings:
        """The settings with at most `per_device` examples per device and the same global batch."""
        plan, flags = self.plan, self.recipe.flags
        solver = solve_shared if plan.shares else solve
        less = solver(plan.world, plan.global_batch, per_device)
        # The request stays the same.
        less = replace(less, target=plan.target, exact=plan.exact, neighbours=plan.neighbours)
        numbers = {flags.train_batch: less.per_device}
        if flags.accumulation:
            numbers[flags.accumulation] = less.accumulation
        return replace(self, plan=less, extra=_with(self.extra, numbers))

    def with_eval_batch(self, per_device: int) -> LaunchSettings:
        """The settings with `per_device` examples per device in evaluation."""
        sizes = replace(self.recipe.batch, eval_per_device=per_device)
        flag = self.recipe.flags.eval_batch
        return replace(
            self,
            recipe=replace(self.recipe, batch=sizes),
            extra=_with(self.extra, {flag: per_device} if flag else {}),
        )

    @property
    def eval_per_device(self) -> int:
        """Examples per device in evaluation."""
        own = _number(parse_flags(self.extra).get(self.recipe.flags.eval_batch or ""))
        return own or self.recipe.batch.eval_per_device


@record
class Rung:
    """A step down the ladder: the new settings, and what changed in words.

    `restarts_training`: it is another training, which cannot resume from the checkpoints of the one
    before.
    """

    setting: LaunchSettings
    change: str
    restarts_training: bool = False


def next_rung(setting: LaunchSettings, failure: RunFailure) -> Rung | None:
    """The next settings that need less memory; None at the bottom of the ladder."""
    first = [_evaluation] if failure.in_evaluation else []
    steps = (rung(setting) for rung in [*first, *RUNGS])
    return next((step for step in steps if step is not None), None)


def _evaluation(now: LaunchSettings) -> Rung | None:
    """Halve the batch of evaluations: no gradient depends on it."""
    half = now.eval_per_device // 2 if now.recipe.flags.eval_batch else 0
    change = f"{half} examples per device in evaluation instead of {now.eval_per_device}"
    return Rung(now.with_eval_batch(half), change) if half else None


def _batch(now: LaunchSettings) -> Rung | None:
    """Take the largest batch up to half of this one that accumulates to the same global batch."""
    plan = now.plan
    if plan.per_device < 2 or now.recipe.flags.accumulation is None:
        return None
    less = now.with_batch(plan.per_device // 2)
    change = (
        f"{less.plan.per_device} per device x {less.plan.accumulation} accumulated instead of "
        f"{plan.per_device} x {plan.accumulation}, global batch {less.plan.global_batch} as before"
    )
    return Rung(less, change)


def _checkpointing(now: LaunchSettings) -> Rung | None:
    """Turn on gradient checkpointing."""
    return _switched_on(now, CHECKPOINTING, "activations are computed again")


def _fsdp(now: LaunchSettings) -> Rung | None:
    """Shard weights, gradients and optimizer states, where there are ranks to share them."""
    if not may_shard(now):
        return None
    ranks = now.plan.world
    what = f"weights, gradients and optimizer states are divided among {ranks} ranks"
    return _switched_on(now, FSDP_FLAG, what)


def may_shard(now: LaunchSettings) -> bool:
    """Whether the script may be given --fsdp: it declares it, and several ranks train equal parts.

    Beside --compile the script would end; for unequal parts of a batch FSDP has not been compared
    with DistributedDataParallel.
    """
    passed = {**now.recipe.arguments, **parse_flags(now.extra)}
    several = now.plan.world > 1 and not now.plan.shares
    return several and FSDP_FLAG in now.declared_flags and COMPILE not in passed


def _switched_on(now: LaunchSettings, switch: str, what: str) -> Rung | None:
    """Pass a switch that the script declares, unless it is passed already."""
    if switch not in now.declared_flags or switch in parse_flags(now.extra):
        return None
    if switch in now.added_flags or switch in now.recipe.arguments:
        return None
    told = {**now.added_flags, switch: None}
    return Rung(replace(now, added_flags=told), f"{switch}: {what}")


def _number_allowed(now: LaunchSettings) -> Rung | None:
    """Halve a number that the recipe allows to be halved."""
    for flag, least in now.recipe.out_of_memory.items():
        number = _number(now.value(flag))
        less = max((number or 0) // 2, least)
        if number and less < number and flag in now.declared_flags:
            change = f"{flag} {less} instead of {number}, as the recipe allows: from the start"
            return Rung(now.with_numbers({flag: less}), change, restarts_training=True)
    return None


RUNGS: Sequence[Callable[[LaunchSettings], Rung | None]] = (
    _batch,
    _checkpointing,
    _fsdp,
    _number_allowed,
)


def _with(extra: tuple[str, ...], numbers: Mapping[str, int]) -> tuple[str, ...]:
    """The user's arguments with these numbers, each only where they have its flag."""
    words: Sequence[str] = extra
    for flag, number in numbers.items():
        if flag in parse_flags(extra):
            words = set_flag(words, flag, str(number))
    return tuple(words)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None
