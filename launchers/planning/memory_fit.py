"""Find a plan whose predicted peak memory fits on the cards."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...recipes.model import Recipe
from ...record import as_dict, record, replace
from ..gpus.model import Gpu
from ..memory.peak import Curve, NoPrediction, Peak
from ..memory.predict import predict
from ..memory.step import CONTRASTIVE_HEADS, FLASH_FROM, TrainingStep, is_sharded, step_of
from .candidates import GIB, Candidate, FitResult, format_gib
from .plan import Plan, ceil_div
from .probed import ProbedBatch, probed_curve

SHOWN = 3  # rejected candidates, the smallest


@record
class TrainingSetup:
    """What is trained on which cards: everything but its batch.

    `arguments` are all flags passed to the script, `declared_flags` those that it has. `state` is
    the folder where predictions are stored. Predicted peaks are multiplied by `correction`, which a
    probe has measured; `probed` are its steps where no memory is predicted.
    """

    recipe: Recipe
    arguments: Mapping[str, Any]
    declared_flags: frozenset[str]
    precision: str
    world: int
    cards: tuple[Gpu, ...]
    state: Path
    correction: float = 1.0
    probed: tuple[ProbedBatch, ...] = ()

    @property
    def checkpointing_switch(self) -> str | None:
        """The script's switch for activation checkpointing, if it has one that is not yet on."""
        switch = self.recipe.model.checkpointing if self.recipe.model else False
        usable = switch in self.declared_flags and switch not in self.arguments
        return switch if isinstance(switch, str) and usable else None


Key = tuple[tuple[int, int] | None, bool]
"""Compute capability, and whether gradients are accumulated."""
Solver = Callable[[int], Plan]
"""Makes the plan for at most so many examples per device."""


def nearest_plans(solver: Solver, largest: int) -> Iterator[Plan]:
    """The best plan with at most `largest` examples per device, then ever smaller ones."""
    while largest > 0:
        plan = solver(largest)
        yield plan
        largest = plan.per_device - 1


def per_device_limit(recipe: Recipe, cards: Sequence[Gpu], plan: Plan) -> int:
    """The most examples per device: the recipe's cap, unless all cards are larger than its own.

    A contrastive loss keeps the cap on any card, as a larger batch means more negatives.
    """
    sizes = recipe.batch
    larger = all(gpu.memory_total > sizes.cap_memory * GIB for gpu in cards)
    if larger and not _is_contrastive(recipe):
        return max(sizes.per_device_cap, ceil_div(plan.target, plan.world))
    return sizes.per_device_cap


def fit(
    training: TrainingSetup, plans: Sequence[Plan], above: Sequence[Plan]
) -> FitResult | NoPrediction:
    """Choose the first of `plans`, largest batch first, that leaves the margin.

    If none does, activation checkpointing is switched on where the script has it; for a contrastive
    loss already where the first plan does not, so that the batch need not shrink. `above` are plans
    beyond the recipe's cap, which are reported and not chosen. Returns NoPrediction if nothing can
    be predicted.
    """
    candidates = predict_candidates(training, [*above, *plans])
    if isinstance(candidates, NoPrediction):
        return candidates
    beyond, within = candidates[: len(above)], candidates[len(above) :]
    contrastive = _is_contrastive(training.recipe)
    enough = within[0].fits if contrastive else any(candidate.fits for candidate in within)
    if training.checkpointing_switch and not enough:
        lighter = predict_candidates(training, plans, {training.checkpointing_switch: None})
        within += [] if isinstance(lighter, NoPrediction) else lighter
    if contrastive:
        within.sort(key=lambda candidate: -candidate.plan.per_device)
    fitting = [candidate for candidate in within if candidate.fits]
    if not fitting:
        return FitResult(min(within, key=_total), fits=False)
    too_large = [candidate for candidate in within if not candidate.fits]
    tight = [candidate for candidate in too_large if candidate.peak.total <= candidate.free][-1:]
    others = [(candidate, "faster, but leaves less than the margin") for candidate in tight]
    less = "fewer examples meet: another training" if contrastive else "accumulates more"
    others += [(candidate, f"leaves more memory, {less}") for candidate in fitting[1:2]]
    rejected = [_too_large(candidate) for candidate in too_large if candidate not in tight]
    return FitResult(
        fitting[0],
        fits=True,
        contrastive_batch=plans[0].per_device if contrastive else 0,
        alternatives=tuple(others),
        rejections=(*rejected[-SHOWN:], *_above_cap(training, beyond)),
    )


def predict_candidates(
    training: TrainingSetup,
    plans: Sequence[Plan],
    changed_arguments: Mapping[str, str | None] | None = None,
) -> list[Candidate] | NoPrediction:
    """Predict the peak of every plan, with these arguments changed."""
    changed_arguments = changed_arguments or {}
    if training.probed:
        world = plans[0].world
        curves = {
            (gpu.compute_capability, accumulates): probed_curve(training.probed, gpu, world)
            for gpu in training.cards
            for accumulates in (False, True)
        }
        return [_on_fullest_card(training, plan, curves, changed_arguments) for plan in plans]
    steps = steps_to_predict(training, changed_arguments)
    if isinstance(steps, NoPrediction):
        return steps
    curves = {}
    for key, answer in zip(steps, predict([*steps.values()], training.state), strict=True):
        if isinstance(answer, NoPrediction):
            return answer
        curves[key] = answer
    return [_on_fullest_card(training, plan, curves, changed_arguments) for plan in plans]


def steps_to_predict(
    training: TrainingSetup, changed_arguments: Mapping[str, str | None]
) -> dict[Key, TrainingStep] | NoPrediction:
    """The steps to predict for each kind of card, with and without accumulated gradients.

    Cards before 8.0 are predicted as later ones, so that fewer steps are traced: all networks here
    use attention masks, with which neither has flash attention.
    """
    steps: dict[Key, TrainingStep] = {}
    for gpu, accumulates in itertools.product(training.cards, (False, True)):
        if gpu.compute_capability is None:
            return NoPrediction(f"card {gpu.index} does not tell its compute capability")
        try:
            step = step_of(
                training.recipe,
                {**training.arguments, **changed_arguments},
                precision=training.precision,
                world=training.world,
                capability=max(gpu.compute_capability, FLASH_FROM),
                accumulates=accumulates,
            )
        except ValueError as error:  # a bad number or precision among the user's arguments
            return NoPrediction(f"the arguments tell no step: {error}")
        if step is None:
            return NoPrediction(f"the recipe {training.recipe.name} does not tell its model")
        steps[gpu.compute_capability, accumulates] = step
    return steps


def _on_fullest_card(
    training: TrainingSetup,
    plan: Plan,
    curves: Mapping[Key, Curve],
    changed_arguments: Mapping[str, str | None],
) -> Candidate:
    """The plan on the card where it takes the largest fraction of the free memory."""
    candidates = []
    for capability, free in {(gpu.compute_capability, gpu.memory_free) for gpu in training.cards}:
        curve = curves[capability, plan.accumulation > 1]
        candidate = Candidate(
            plan=plan,
            precision=training.precision,
            changed_arguments=changed_arguments,
            peak=_corrected(curve.at(plan.per_device), training.correction),
            free=free,
            flops=curve.flops,
            bytes_moved=curve.moved,
            fixed_bytes_moved=curve.moved_once,
            trainable_bytes=curve.trainable,
            sharded=is_sharded({**training.arguments, **changed_arguments}, plan.world),
        )
        candidates.append(candidate)
    return max(candidates, key=lambda candidate: candidate.peak.total / max(1, candidate.free))


def _is_contrastive(recipe: Recipe) -> bool:
    """Whether the loss compares the examples of a batch, so that the batch size matters to it."""
    return recipe.model is not None and recipe.model.head in CONTRASTIVE_HEADS


def _corrected(peak: Peak, factor: float) -> Peak:
    """Scale all that torch's allocator holds, which the context is not part of."""
    parts = {name: round(value * factor) for name, value in as_dict(peak).items()}
    return replace(peak, **{**parts, "context": peak.context})


def _total(candidate: Candidate) -> int:
    return candidate.peak.total


def _too_large(candidate: Candidate) -> str:
    return (
        f"{candidate.name}: {format_gib(candidate.peak.total)} GiB of {format_gib(candidate.limit)}"
    )


def _above_cap(training: TrainingSetup, beyond: Sequence[Candidate]) -> Iterator[str]:
    """A line on the smallest batch above the recipe's cap, if there is one."""
    sizes = training.recipe.batch
    for candidate in beyond[-1:]:
        if not candidate.fits:
            yield _too_large(candidate)
            continue
        yield (
            f"{candidate.summary} would do, but the recipe takes at most "
            f"{sizes.per_device_cap} on a card of {sizes.cap_memory} GB; "
            f"--per-device {candidate.plan.per_device} takes it"
        )
