"""Which ways to make a global batch fit into the memory of the cards, by prediction."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...recipes.model import Recipe
from ...record import as_dict, changed, record
from ..gpus.model import Gpu
from ..memory.peak import Curve, NoPrediction, Peak
from ..memory.predict import predict
from ..memory.step import FLASH_FROM, MEETING, TrainingStep, step_of
from .candidates import GIB, Candidate, FitResult, in_gib
from .plan import Plan

SHOWN = 3  # rejected ways, the smallest


@record
class TrainingSetup:
    """What is trained on which cards, everything but its batch.

    `arguments` are all flags that the script is given, `declared` those that it has; `precision`
    is what it computes in. `state` is the folder where predictions are kept. `correction` is what
    predicted peaks are multiplied with, as a probe has measured.
    """

    recipe: Recipe
    arguments: Mapping[str, Any]
    declared: frozenset[str]
    precision: str
    world: int
    cards: tuple[Gpu, ...]
    state: Path
    correction: float = 1.0

    @property
    def switch(self) -> str | None:
        """The script's switch for checkpointing, if it has one that is not yet on."""
        switch = self.recipe.model.checkpointing if self.recipe.model else False
        usable = switch in self.declared and switch not in self.arguments
        return switch if isinstance(switch, str) and usable else None


Key = tuple[tuple[int, int] | None, bool]
"""A compute capability, and whether gradients are accumulated."""
Solver = Callable[[int], Plan]
"""The plan for at most so many examples per device."""


def splits(solver: Solver, most: int) -> Iterator[Plan]:
    """All plans with at most `most` examples per device that are as near to the target as any.

    The first takes the most at once.
    """
    while most > 0:
        plan = solver(most)
        yield plan
        most = plan.per_device - 1


def bound(recipe: Recipe, cards: Sequence[Gpu], plan: Plan) -> int:
    """The most examples per device: the recipe's cap, unless all cards are larger than its own.

    Where examples meet, more of them at a time are another training, whatever the cards.
    """
    sizes = recipe.batch
    if not _meet(recipe) and all(gpu.memory_total > sizes.cap_memory * GIB for gpu in cards):
        return max(sizes.per_device_cap, -(-plan.target // plan.world))
    return sizes.per_device_cap


def fit(
    training: TrainingSetup, plans: Sequence[Plan], above: Sequence[Plan]
) -> FitResult | NoPrediction:
    """The first of `plans`, largest batch first, that leaves the margin; or why nothing is known.

    Where none does and the script can checkpoint, that is switched on; where examples meet, rather
    than that fewer of them do. `above` are plans beyond the recipe's cap, which are told of and not
    taken.
    """
    found = ways(training, [*above, *plans])
    if isinstance(found, NoPrediction):
        return found
    beyond, within = found[: len(above)], found[len(above) :]
    meet = _meet(training.recipe)
    if training.switch and not (within[0].fits if meet else any(way.fits for way in within)):
        lighter = ways(training, plans, {training.switch: None})
        within += [] if isinstance(lighter, NoPrediction) else lighter
    if meet:
        within.sort(key=lambda way: -way.plan.per_device)
    able = [way for way in within if way.fits]
    if not able:
        return FitResult(min(within, key=_total), fits=False)
    too_large = [way for way in within if not way.fits]
    tight = [way for way in too_large if way.peak.total <= way.free][-1:]
    others = [(way, "faster, but leaves less than the margin") for way in tight]
    less = "fewer examples meet: another training" if meet else "accumulates more"
    others += [(way, f"leaves more memory, {less}") for way in able[1:2]]
    rejected = [_too_large(way) for way in too_large if way not in tight]
    return FitResult(
        able[0],
        fits=True,
        meeting=plans[0].per_device if meet else 0,
        others=tuple(others),
        rejected=(*rejected[-SHOWN:], *_capped(training, beyond)),
    )


def ways(
    training: TrainingSetup, plans: Sequence[Plan], changed: Mapping[str, str | None] | None = None
) -> list[Candidate] | NoPrediction:
    """The predicted peak of every plan, with these arguments changed; or why there is none."""
    changed = changed or {}
    steps = steps_of(training, changed)
    if isinstance(steps, NoPrediction):
        return steps
    curves: dict[Key, Curve] = {}
    for key, answer in zip(steps, predict([*steps.values()], training.state), strict=True):
        if isinstance(answer, NoPrediction):
            return answer
        curves[key] = answer
    return [_fullest(training, plan, curves, changed) for plan in plans]


def steps_of(
    training: TrainingSetup, changed: Mapping[str, str | None]
) -> dict[Key, TrainingStep] | NoPrediction:
    """The steps to predict, for each kind of card.

    Cards before 8.0 take what later ones do: with the masks that all networks here have, there is
    no flash attention on either, and so that fewer steps have to be traced.
    """
    steps: dict[Key, TrainingStep] = {}
    for gpu, accumulates in itertools.product(training.cards, (False, True)):
        if gpu.compute_capability is None:
            return NoPrediction(f"card {gpu.index} does not tell its compute capability")
        try:
            step = step_of(
                training.recipe,
                {**training.arguments, **changed},
                precision=training.precision,
                world=training.world,
                capability=max(gpu.compute_capability, FLASH_FROM),
                accumulates=accumulates,
            )
        except ValueError as error:  # a number or a precision that the user passes
            return NoPrediction(f"the arguments tell no step: {error}")
        if step is None:
            return NoPrediction(f"the recipe {training.recipe.name} does not tell its model")
        steps[gpu.compute_capability, accumulates] = step
    return steps


def _fullest(
    training: TrainingSetup,
    plan: Plan,
    curves: Mapping[Key, Curve],
    changed: Mapping[str, str | None],
) -> Candidate:
    """The plan on the card of which it takes the largest part."""
    found = []
    for capability, free in {(gpu.compute_capability, gpu.memory_free) for gpu in training.cards}:
        curve = curves[capability, plan.accumulation > 1]
        way = Candidate(
            plan=plan,
            precision=training.precision,
            changed=changed,
            peak=_corrected(curve.at(plan.per_device), training.correction),
            free=free,
            flops=curve.flops,
            moved=curve.moved,
            moved_once=curve.moved_once,
            trainable=curve.trainable,
        )
        found.append(way)
    return max(found, key=lambda way: way.peak.total / max(1, way.free))


def _meet(recipe: Recipe) -> bool:
    """Whether examples of a batch meet in the loss, so that their number matters."""
    return recipe.model is not None and recipe.model.head in MEETING


def _corrected(peak: Peak, factor: float) -> Peak:
    """All that torch holds, by the measured factor; the context is none of it."""
    parts = {name: round(value * factor) for name, value in as_dict(peak).items()}
    return changed(peak, **{**parts, "context": peak.context})


def _total(way: Candidate) -> int:
    return way.peak.total


def _too_large(way: Candidate) -> str:
    return f"{way.name}: {in_gib(way.peak.total)} GiB of {in_gib(way.limit)}"


def _capped(training: TrainingSetup, beyond: Sequence[Candidate]) -> Iterator[str]:
    """The least batch above the recipe's cap."""
    sizes = training.recipe.batch
    for way in beyond[-1:]:
        if not way.fits:
            yield _too_large(way)
            continue
        yield (
            f"{way.said} would do, but the recipe takes at most "
            f"{sizes.per_device_cap} on a card of {sizes.cap_memory} GB; "
            f"--per-device {way.plan.per_device} takes it"
        )
