"""Plan a run: its batch by predicted memory, its settings, and the time it should take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from ...recipes.model import Recipe
from ...record import as_dict, record, replace
from ..cpu import CORES_ELSEWHERE, available_cores
from ..gpus.select import Devices
from ..script.arguments import parse_flags, requested_batch
from ..script.flags import remove_flag
from ..script.source import batch_includes_accumulation, declared_flag_names, script_text
from ..state import state_folder
from .plan import Plan, solve, solve_shared
from .probed import describe, memory_line
from .settings import Settings, choose_settings
from .throughput import Throughput, ThroughputHistory
from .training_steps import compute_horizon

if TYPE_CHECKING:  # imported only where there are cards or measurements
    from .candidates import Candidate, FitResult
    from .roofline import StepTime
    from .time_estimate import Estimate


@record
class PlanRequest:
    """What to plan for: a recipe and its script, with the user's overrides of the recipe.

    `extra` are the user's own arguments for the script. `shared` means that ranks split each batch
    among them, as scripts patched with ``--exact`` do. `is_command`: the recipe was made from the
    user's own command; `unknown_model` says why it tells no model then.
    """

    recipe: Recipe
    script: Path
    global_batch: int | None = None
    per_device: int | None = None
    precision: str = "auto"
    extra: tuple[str, ...] = ()
    shared: bool = False
    machines: int = 1
    unknown_model: str = ""
    is_command: bool = False

    @property
    def batch_is_fixed(self) -> bool:
        """Whether the user fixes the per-device batch or the accumulation."""
        fixed = requested_batch(self.recipe, self.extra)
        return self.per_device is not None or fixed != (None, None)

    def plan(self, world: int, max_per_device: int | None = None) -> Plan:
        """Split the global batch over `world` processes, with at most `max_per_device` each.

        A batch or accumulation flag among the user's arguments is obeyed, and the other one chosen
        to suit it; a script without a flag for accumulation does not accumulate.

        Raises:
            InputError: a number is below 1, or such a flag has no number.

        """
        sizes = self.recipe.batch
        if not self.recipe.flags.train_batch:  # nothing of its batch can be chosen
            size = sizes.per_device_cap
            return solve(world, size * world, size, per_device=size, accumulation=1)
        batch, accumulation = self._user_batch()
        if not self.accumulates:
            accumulation = 1
        target = sizes.global_batch if self.global_batch is None else self.global_batch
        cap = sizes.per_device_cap if self.per_device is None else self.per_device
        cap = cap if max_per_device is None else max_per_device
        if self.shared:
            return solve_shared(world, target, cap, accumulation=accumulation)
        return solve(world, target, cap, per_device=batch, accumulation=accumulation)

    def _user_batch(self) -> tuple[int | None, int | None]:
        """The micro-batch and the accumulation set by the user's own arguments."""
        batch, accumulation = requested_batch(self.recipe, self.extra)
        flags = self.recipe.flags
        if batch is None or not batch_includes_accumulation(
            script_text(self.script), flags.train_batch, flags.accumulation
        ):
            return batch, accumulation
        accumulation = accumulation or 1
        if batch % accumulation:
            raise InputError(
                f"{flags.train_batch} {batch}: {self.script} divides it by {flags.accumulation} "
                f"{accumulation}, which leaves a rest"
            )
        return batch // accumulation, accumulation

    def throughput_history(self, devices: Devices) -> ThroughputHistory:
        """Earlier measurements of this training on these devices."""
        flag = self.recipe.flags.sequence_length or ""
        length = parse_flags(self.extra).get(flag) or self.recipe.arguments.get(flag)
        training = (self.recipe.name, *([] if length is None else [f"length {length}"]))
        what = self._own_words() if self.is_command else as_dict(self.recipe)
        identity = json.dumps([what, str(self.script.absolute())], sort_keys=True)
        return ThroughputHistory(state_folder(), training, devices.cards, identity)

    def with_batch(self, plan: Plan, per_device: int, accumulation: int) -> Plan:
        """A plan with another batch, and so many micro-batches a step."""
        target = per_device * accumulation * plan.world
        if self.shared:
            return solve_shared(plan.world, target, per_device, accumulation=accumulation)
        return solve(
            plan.world, target, per_device, per_device=per_device, accumulation=accumulation
        )

    def _own_words(self) -> list[str]:
        """The words of a command that may change a step: not where it writes, how long, how fast.

        Its batch and accumulation are not among `extra`: they are the plan's.
        """
        flags, words = self.recipe.flags, list(self.extra)
        for flag in (flags.output, flags.seed, flags.epochs, flags.max_steps, flags.learning_rate):
            words = remove_flag(words, flag, takes_value=True) if flag else words
        return words

    @property
    def accumulates(self) -> bool:
        """Whether the script has a flag for gradient accumulation."""
        return self.recipe.flags.accumulation is not None


@record
class MainMemory:
    """Bytes of main memory that a process takes on the CPU, `per_example` of them for each example.

    `source` says what they were measured by.
    """

    total: int
    per_example: int
    source: str

    @property
    def summary(self) -> str:
        """One sentence, without its full stop."""
        gib, mib = self.total / (1 << 30), self.per_example / (1 << 20)
        return (
            f"memory: {gib:.1f} GiB of main memory a process, {mib:.2g} MiB of it for each "
            f"example, as measured by {self.source}"
        )


@record
class FullPlan:
    """A batch plan with its settings, predicted memory and estimated time.

    `why_unpredicted` says why no memory is predicted; it is empty on the CPU, whose memory is not
    planned. `roofline` is the step time expected from the cards' datasheets, `throughput` what was
    measured before. `alternatives` are sentences on alternatives and on rejected candidates.
    `memory_source` says what the memory rests on, where no recipe tells the model. `main_memory` is
    that of a process on the CPU, where a probe has measured it.
    """

    plan: Plan
    settings: Settings
    memory_fit: FitResult | None = None
    why_unpredicted: str = ""
    roofline: StepTime | None = None
    throughput: Throughput | None = None
    estimate: Estimate | None = None
    alternatives: tuple[str, ...] = ()
    memory_source: str = ""
    main_memory: MainMemory | None = None

    def with_learned_plan(self, plan: Plan) -> FullPlan:
        """Replace the plan by one learned from an OOM, and drop the predictions."""
        return FullPlan(plan, self.settings)

    @property
    def summary(self) -> list[str]:
        """One sentence on each part, without its full stop."""
        sentences = [self.plan.why, *self.settings.summary]
        if self.memory_fit:
            sentences.append(self.memory_fit.summary)
            if self.memory_source:
                sentences.append(f"memory rests on {self.memory_source}")
        elif self.why_unpredicted:
            sentences.append(f"memory is not predicted: {self.why_unpredicted}")
        elif self.main_memory:
            sentences.append(self.main_memory.summary)
        return [*sentences, *(self.estimate.summary if self.estimate else ())]

    def facts(self) -> dict[str, Any]:
        """The plan as plain data for JSON."""
        unknown: dict[str, Any] | None = None
        if self.why_unpredicted:
            unknown = {"unknown": self.why_unpredicted}
        elif self.main_memory:
            unknown = {"main_memory": as_dict(self.main_memory)}
        return {
            "plan": as_dict(self.plan),
            **self.settings.facts(),
            "memory": self.memory_fit.facts() if self.memory_fit else unknown,
            "time": as_dict(self.estimate) if self.estimate else None,
        }


def make_plan(request: PlanRequest, devices: Devices) -> FullPlan:
    """Plan a run on these cards, or on the CPU.

    On cards the batch is the largest whose predicted peak leaves a margin, unless the user fixes
    it; where nothing can be predicted, it is the largest up to the recipe's cap.

    Raises:
        InputError: nothing fits, the script has no flag for the precision, or as for
            `PlanRequest.plan`.

    """
    user_arguments = parse_flags(request.extra)
    first = request.plan(devices.world * request.machines)
    chosen = choose_settings(
        request.recipe,
        request.script,
        first,
        devices.cards,
        cores=_cores(devices) * request.machines,
        precision=request.precision,
        user_arguments=user_arguments,
    )
    precision = chosen.precision.name
    pace = request.throughput_history(devices).latest(precision)
    if not devices.cards:
        told = FullPlan(first, chosen, throughput=pace)
        return _with_time(replace(told, main_memory=_main_memory(first, pace)), devices)
    found = _fit_memory(request, devices, precision, first, pace)
    if isinstance(found, str):
        return _with_time(FullPlan(first, chosen, why_unpredicted=found, throughput=pace), devices)
    if not found.fits and request.accumulates and not request.batch_is_fixed:
        raise InputError(found.error_message)
    plan = found.candidate.plan
    if plan != first:
        steps = compute_horizon(request.recipe, plan, request.script, user_arguments)
        chosen = replace(chosen, horizon=steps)
    chosen = replace(chosen, arguments={**chosen.arguments, **found.candidate.changed_arguments})
    source = _memory_source(request, found, pace)
    full = FullPlan(plan, chosen, found, throughput=pace, memory_source=source)
    return _with_time(full, devices)


def _cores(devices: Devices) -> int:
    """The CPU cores of one machine; those of this one say nothing of one with simulated cards."""
    return CORES_ELSEWHERE * devices.world if devices.simulated else available_cores()


def _main_memory(plan: Plan, pace: Throughput | None) -> MainMemory | None:
    if pace is None or not pace.probed:
        return None
    line = memory_line(pace.probed)
    total = round(line.at(plan.per_device))
    return MainMemory(total, round(line.per_example), describe(pace.probed))


def _memory_source(request: PlanRequest, found: FitResult, pace: Throughput | None) -> str:
    """What a predicted memory was read from, where no recipe tells it."""
    if found.candidate.peak.measured and pace is not None:
        return describe(pace.probed)
    network = request.recipe.model
    if network is None or not network.config:
        return ""
    corrected = ", corrected by --probe" if pace and pace.memory else ""
    return request.recipe.sources["model"] + corrected


def _fit_memory(
    request: PlanRequest, devices: Devices, precision: str, first: Plan, pace: Throughput | None
) -> FitResult | str:
    """The plan that fits into memory, or why that cannot be predicted."""
    recipe, flags = request.recipe, declared_flag_names(request.script)
    probed = pace.probed if pace else ()
    if recipe.model is None and not probed:
        return request.unknown_model or f"the recipe {recipe.name} does not tell its model"
    from ..memory.peak import NoPrediction
    from .memory_fit import TrainingSetup, fit, nearest_plans, per_device_limit

    optional = {flag: value for flag, value in recipe.if_declared.items() if flag in flags}
    training = TrainingSetup(
        recipe=recipe,
        arguments={**recipe.arguments, **optional, **parse_flags(request.extra)},
        declared_flags=flags,
        precision=(recipe.model.precision if recipe.model else "") or precision,
        world=first.world,
        cards=devices.cards,
        state=state_folder(),
        correction=pace.memory if pace and pace.memory else 1.0,
        probed=() if recipe.model else probed,
    )
    within, above = [first], []
    if request.accumulates and not request.batch_is_fixed:
        limit = per_device_limit(recipe, devices.cards, first)
        plans = [*nearest_plans(lambda cap: request.plan(first.world, cap), first.target)]
        within = [plan for plan in plans if plan.per_device <= limit]
        above = [plan for plan in plans if plan.per_device > limit]
    found = fit(training, within, above)
    if isinstance(found, NoPrediction) and probed:
        training = replace(training, probed=probed)
        found = fit(training, within, above)
    if isinstance(found, NoPrediction):
        return found.because
    if found.fits:
        return found
    from .suggestions import suggest_remedies

    return replace(found, remedies=suggest_remedies(training, found.candidate, within))


def _with_time(full: FullPlan, devices: Devices) -> FullPlan:
    """Add the estimated time, if it was measured or the memory could be predicted."""
    if full.throughput is None and full.memory_fit is None:
        return full
    from .roofline import expected_step_time
    from .time_estimate import estimate, format_duration

    def time(plan: Plan, roofline: StepTime | None) -> Estimate | None:
        return estimate(plan, roofline, full.throughput, full.settings.horizon, devices.cards)

    if full.memory_fit is None:
        return replace(full, estimate=time(full.plan, None))

    def roofline_of(candidate: Candidate) -> StepTime | None:
        # Of a probe's steps no operations are known.
        if candidate.peak.measured:
            return None
        return expected_step_time(candidate, devices.cards, devices.links)

    roofline = roofline_of(full.memory_fit.candidate)
    others = []
    for candidate, why in full.memory_fit.alternatives:
        estimated = time(candidate.plan, roofline_of(candidate))
        step = f", {format_duration(estimated.step)} a step" if estimated else ""
        others.append(f"or {candidate.summary}{step}: {why}")
    others += [f"not {line}" for line in full.memory_fit.rejections]
    return replace(
        full, roofline=roofline, estimate=time(full.plan, roofline), alternatives=tuple(others)
    )
