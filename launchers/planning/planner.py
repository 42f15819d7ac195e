"""A plan as a whole: its batch, by prediction where there is one, and everything told with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from ...recipes.model import Recipe
from ...record import as_dict, changed, record
from ..cpu import cores
from ..gpus.select import Devices
from ..script.arguments import fixed_by, parse_flags
from ..script.source import counts_steps, declared, text_of
from ..state import state_folder
from .plan import Plan, solve, solve_shared
from .settings import Settings, settings
from .throughput import Throughput, ThroughputHistory
from .training_steps import horizon

if TYPE_CHECKING:  # needed only where there are cards, or something was measured
    from .candidates import FitResult
    from .roofline import StepTime
    from .time_estimate import Estimate


@record
class PlanRequest:
    """What a plan is asked for: the script, and the user's numbers in place of the recipe's.

    `extra` are the user's own arguments for the script. `shared`: ranks share each batch out.
    """

    recipe: Recipe
    script: Path
    global_batch: int | None = None
    per_device: int | None = None
    precision: str = "auto"
    extra: tuple[str, ...] = ()
    shared: bool = False
    machines: int = 1

    @property
    def told(self) -> bool:
        """Whether the user says how the global batch is made."""
        fixed = fixed_by(self.recipe, self.extra)
        return self.per_device is not None or fixed != (None, None)

    def plan(self, world: int, most: int | None = None) -> Plan:
        """The batch plan for so many processes, with at most so many examples each.

        A batch or accumulation flag among the user's arguments is kept, and the other one fitted to
        it; a script without a flag for it does not accumulate.

        Raises:
            InputError: a number below 1, or such a flag without one.

        """
        sizes = self.recipe.batch
        batch, accumulation = self._fixed()
        if not self.accumulates:
            accumulation = 1
        target = sizes.global_batch if self.global_batch is None else self.global_batch
        cap = sizes.per_device_cap if self.per_device is None else self.per_device
        cap = cap if most is None else most
        if self.shared:
            return solve_shared(world, target, cap, accumulation=accumulation)
        return solve(world, target, cap, per_device=batch, accumulation=accumulation)

    def _fixed(self) -> tuple[int | None, int | None]:
        """The micro-batch and the accumulation that the user's own arguments ask for."""
        batch, accumulation = fixed_by(self.recipe, self.extra)
        flags = self.recipe.flags
        if batch is None or not counts_steps(
            text_of(self.script), flags.train_batch, flags.accumulation
        ):
            return batch, accumulation
        accumulation = accumulation or 1
        if batch % accumulation:
            raise InputError(
                f"{flags.train_batch} {batch}: {self.script} divides it by {flags.accumulation} "
                f"{accumulation}, which leaves a rest"
            )
        return batch // accumulation, accumulation

    def paces(self, devices: Devices) -> ThroughputHistory:
        """What was measured of it on these devices."""
        length = self.recipe.flags.sequence_length or ""
        said = parse_flags(self.extra).get(length) or self.recipe.arguments.get(length)
        training = (self.recipe.name, *([] if said is None else [f"length {said}"]))
        return ThroughputHistory(state_folder(), training, devices.cards)

    @property
    def accumulates(self) -> bool:
        """Whether the script can be told to."""
        return self.recipe.flags.accumulation is not None


@record
class FullPlan:
    """A plan, with what is predicted of its memory and time.

    `unknown` says why no memory is predicted; it is empty on the CPU, whose memory is not planned.
    `roofline` is the step that is expected by the cards' sheets, `pace` what was measured before.
    `others` are sentences on other ways to train, and on what is rejected.
    """

    plan: Plan
    settings: Settings
    fitting: FitResult | None = None
    unknown: str = ""
    roofline: StepTime | None = None
    pace: Throughput | None = None
    estimate: Estimate | None = None
    others: tuple[str, ...] = ()

    def lowered(self, plan: Plan) -> FullPlan:
        """The same with what was learned in the place of what was predicted."""
        return FullPlan(plan, self.settings)

    @property
    def said(self) -> list[str]:
        """One sentence on each part, without its full stop."""
        told = [self.plan.why, *self.settings.said]
        if self.fitting:
            told.append(self.fitting.said)
        elif self.unknown:
            told.append(f"memory is not predicted: {self.unknown}")
        return [*told, *(self.estimate.said if self.estimate else ())]

    def facts(self) -> dict[str, Any]:
        """As JSON can hold it."""
        unknown = {"unknown": self.unknown} if self.unknown else None
        return {
            "plan": as_dict(self.plan),
            **self.settings.facts(),
            "memory": self.fitting.facts() if self.fitting else unknown,
            "time": as_dict(self.estimate) if self.estimate else None,
        }


def planned(asked: PlanRequest, devices: Devices) -> FullPlan:
    """The plan for these cards, or for the CPU.

    On cards the batch is the largest whose predicted peak leaves a margin, unless the user says
    which; where nothing can be predicted, the largest up to the recipe's cap.

    Raises:
        InputError: nothing fits; or as for `PlanRequest.plan`, or a precision for which the
            script has no flag.

    """
    mine = parse_flags(asked.extra)
    first = asked.plan(devices.world * asked.machines)
    more = settings(
        asked.recipe,
        asked.script,
        first,
        devices.cards,
        cores=cores() * asked.machines,
        precision=asked.precision,
        mine=mine,
    )
    pace = asked.paces(devices).known(more.precision.name)
    found = _fitting(asked, devices, more.precision.name, first, pace) if devices.cards else ""
    if isinstance(found, str):
        return _timed(FullPlan(first, more, unknown=found, pace=pace), devices)
    if not found.fits and asked.accumulates and not asked.told:
        raise InputError(found.objection)
    solved = found.chosen.plan
    if solved != first:
        counted = horizon(asked.recipe, solved, asked.script, mine)
        more = changed(more, horizon=counted)
    more = changed(more, arguments={**more.arguments, **found.chosen.changed})
    return _timed(FullPlan(solved, more, found, pace=pace), devices)


def _fitting(
    asked: PlanRequest, devices: Devices, precision: str, first: Plan, pace: Throughput | None
) -> FitResult | str:
    """What fits, or why that is not known."""
    recipe, flags = asked.recipe, declared(asked.script)
    if recipe.model is None:
        return f"the recipe {recipe.name} does not tell its model"
    from ..memory.peak import NoPrediction
    from .memory_fit import TrainingSetup, bound, fit, splits

    wanted = {flag: value for flag, value in recipe.if_declared.items() if flag in flags}
    training = TrainingSetup(
        recipe=recipe,
        arguments={**recipe.arguments, **wanted, **parse_flags(asked.extra)},
        declared=flags,
        precision=recipe.model.precision or precision,
        world=first.world,
        cards=devices.cards,
        state=state_folder(),
        correction=pace.memory if pace and pace.memory else 1.0,
    )
    within, above = [first], []
    if asked.accumulates and not asked.told:
        most = bound(recipe, devices.cards, first)
        every = [*splits(lambda cap: asked.plan(first.world, cap), first.target)]
        within = [plan for plan in every if plan.per_device <= most]
        above = [plan for plan in every if plan.per_device > most]
    found = fit(training, within, above)
    if isinstance(found, NoPrediction):
        return found.because
    if found.fits:
        return found
    from .suggestions import remedies

    return changed(found, remedies=remedies(training, found.chosen))


def _timed(known: FullPlan, devices: Devices) -> FullPlan:
    """With the time, if there is something to go by."""
    if known.pace is None and known.fitting is None:
        return known
    from .roofline import expected
    from .time_estimate import estimate, in_words

    def time(plan: Plan, roofline: StepTime | None) -> Estimate | None:
        return estimate(plan, roofline, known.pace, known.settings.horizon, devices.cards)

    if known.fitting is None:
        return changed(known, estimate=time(known.plan, None))
    roofline = expected(known.fitting.chosen, devices.cards, devices.links)
    others = []
    for way, why in known.fitting.others:
        took = time(way.plan, expected(way, devices.cards, devices.links))
        step = f", {in_words(took.step)} a step" if took else ""
        others.append(f"or {way.said}{step}: {why}")
    others += [f"not {words}" for words in known.fitting.rejected]
    return changed(
        known, roofline=roofline, estimate=time(known.plan, roofline), others=tuple(others)
    )
