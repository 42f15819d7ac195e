"""Time some real optimizer steps of a plan, started as the run itself would be."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from ...errors import InputError
from ..backends import command
from ..backends.command import Command
from ..backends.interpreter import Interpreter, rank_module
from ..gpus.monitor import SAMPLES_FILE
from ..gpus.select import Devices
from ..planning.plan import Plan
from ..planning.planner import FullPlan, PlanRequest, make_plan
from ..planning.probed import ProbedBatch
from ..planning.throughput import Throughput
from ..script.arguments import parse_flags, requested_batch
from ..script.flags import set_flag
from ..stop_signals import stop_if_signalled, unwinding
from .run_record import utc_now
from .runner import LOG, OutputOptions, RunLimits, run
from .step_line import StepLine

_GRACE = 1.0  # seconds that a stopped probe has to end in
_TAIL = 5  # lines of a failed probe that are shown

CommandBuilder = Callable[[Path, tuple[str, ...]], Command]
"""Makes the command that trains into a folder, with a module (and its options) run the script."""


@attrs.frozen
class ProbeResult:
    """The median seconds of an optimizer step, of the slowest rank.

    `reserved` is the peak of bytes that torch's allocator reserved on a card, `power` the cards'
    mean watts; None without a card. `main_memory` is the peak of a process, in bytes.
    """

    seconds: float
    reserved: int | None
    power: float | None
    main_memory: int

    def at(self, plan: Plan) -> ProbedBatch:
        """What its steps took at their batch."""
        return ProbedBatch(plan.per_device, self.reserved or self.main_memory, self.seconds)


class OutOfMemoryError(InputError):
    """A card was too small for the batch of a probe."""


@unwinding()
def probe_plan(
    asked: PlanRequest,
    devices: Devices,
    steps: int,
    backend: str | None = None,
    python: Interpreter | None = None,
) -> FullPlan:
    """Run `steps` optimizer steps of the plan, save what they show, and plan again with it.

    Where no memory is predicted, they are run at two batches, from which others follow.

    The ranks are started by `backend`, by default the one that starts fastest: the steps are the
    same with each. `python` runs them, by default ours.

    Raises:
        InputError: the script ends before, or there is no plan.
        SystemExit: the user stopped it.

    """
    first = make_plan(asked, devices)
    output = asked.recipe.flags.output
    backend = backend or ("direct" if first.plan.world > 1 else None)

    def build(plan: Plan, folder: Path, prefix: tuple[str, ...]) -> Command:
        extra: Sequence[str] = asked.extra
        if output and output in parse_flags(extra):  # the user's is for the run itself
            extra = set_flag(extra, output, str(folder))
        return command.build(
            command.ScriptCall(
                asked.recipe, asked.script, plan, folder, extra, first.settings.arguments
            ),
            command.ProcessOptions(
                devices.indices,
                backend,
                module_prefix=prefix,
                python=python,
            ),
        )

    def measure_plan(plan: Plan) -> ProbeResult:
        cards = [gpu.index for gpu in devices.cards]
        return measure(partial(build, plan), steps, cards, python)

    if _is_predicted(asked, first):
        pace = _throughput(first, measure_plan(first.plan))
    else:
        pace = _two_batches(asked, first, measure_plan, bool(devices.cards))
    paces = asked.throughput_history(devices)
    try:
        paces.store(pace, first.settings.precision.name)
    except OSError as error:
        raise InputError(f"{paces.state}: {error.strerror}: nothing can be kept there") from None
    return make_plan(asked, devices)


def _is_predicted(asked: PlanRequest, first: FullPlan) -> bool:
    """Whether the plan's memory is that of a model, rather than unknown or probed before.

    On the CPU none is predicted; a recipe's plan needs none there.
    """
    if first.memory_fit is None:
        return asked.recipe.model is not None and not (asked.is_command or first.why_unpredicted)
    return not first.memory_fit.candidate.peak.measured


def _two_batches(
    asked: PlanRequest,
    first: FullPlan,
    measure_plan: Callable[[Plan], ProbeResult],
    on_cards: bool,
) -> Throughput:
    """Measure the plan's batch and half of it; halves of them where a card is too small.

    On cards a script that accumulates does so in the probe, as then it needs the most: gradients
    are there while others are made.
    """
    plan, can_change = first.plan, _batch_can_change(asked)
    accumulation = 2 if plan.accumulation > 1 or (on_cards and asked.accumulates) else 1
    if can_change:
        plan = asked.with_batch(plan, plan.per_device, accumulation)
    while True:
        try:
            results = [(plan, measure_plan(plan))]
            break
        except OutOfMemoryError:
            if plan.per_device == 1 or not can_change:
                raise
            plan = asked.with_batch(plan, plan.per_device // 2, accumulation)
    if can_change and plan.per_device > 1:
        half = asked.with_batch(plan, plan.per_device // 2, accumulation)
        results.append((half, measure_plan(half)))
    return Throughput(
        when=utc_now(),
        world=plan.world,
        per_device=plan.per_device,
        accumulation=plan.accumulation,
        seconds=results[0][1].seconds,
        power=results[0][1].power,
        probed=tuple(result.at(each) for each, result in results),
    )


def _batch_can_change(asked: PlanRequest) -> bool:
    """Whether the script has an option for its batch that the user's arguments leave free."""
    has_option = bool(asked.recipe.flags.train_batch)
    return has_option and requested_batch(asked.recipe, asked.extra) == (None, None)


def _throughput(first: FullPlan, result: ProbeResult) -> Throughput:
    """The measurements, and their ratios to the predictions."""
    memory = None
    if first.memory_fit and result.reserved:
        correction = (first.throughput.memory if first.throughput else None) or 1.0
        memory = result.reserved / first.memory_fit.candidate.peak.reserved * correction
    return Throughput(
        when=utc_now(),
        world=first.plan.world,
        per_device=first.plan.per_device,
        accumulation=first.plan.accumulation,
        seconds=result.seconds,
        time=result.seconds / first.roofline.seconds if first.roofline else None,
        memory=memory,
        power=result.power,
    )


def measure(
    build: CommandBuilder, steps: int, cards: Sequence[int], python: Interpreter | None = None
) -> ProbeResult:
    """Run one step to warm up and `steps` more, in a temporary folder.

    Raises:
        InputError: the script ends before.
        SystemExit: the user stopped it.

    """
    with tempfile.TemporaryDirectory(prefix="ddpfix-probe-") as name:
        folder = Path(name)
        worker = rank_module(f"{__package__}.probe_worker", python)
        prefix = (*worker, "--out", str(folder), "--steps", str(steps))
        outcome = run(
            build(folder / "run", prefix),
            folder / "run",
            limits=RunLimits(grace=_GRACE),
            output=OutputOptions(quiet=True, view=StepLine()),
            cards=cards,
        )
        stop_if_signalled()
        ranks = [json.loads(path.read_text()) for path in sorted(folder.glob("rank*.json"))]
        if outcome.status or not ranks:
            log = folder / "run" / LOG
            too_large = "out of memory" in log.read_text("utf-8", errors="replace").lower()
            kind = OutOfMemoryError if too_large else InputError
            raise kind(_failure_message(log, outcome.cause, steps))
        return ProbeResult(
            seconds=max(statistics.median(rank["seconds"]) for rank in ranks),
            reserved=max((rank["reserved"] for rank in ranks if rank["reserved"]), default=None),
            power=_power(folder / "run" / SAMPLES_FILE),
            main_memory=max(rank["main_memory"] for rank in ranks),
        )


def _failure_message(log: Path, cause: str, steps: int) -> str:
    if cause == "finished":
        return f"--probe {steps}: the script ended before it had taken {steps + 1} optimizer steps"
    last = log.read_text("utf-8", errors="replace").splitlines()[-_TAIL:]
    return "\n".join([f"--probe {steps}: the script {cause}; its last lines:", *last])


def _power(samples: Path) -> float | None:
    """The mean watts over all samples of busy cards."""
    if not samples.exists():
        return None
    rows: list[dict[str, Any]] = [json.loads(line) for line in samples.read_text().splitlines()]
    cards = [card for row in rows for card in row.get("gpus", ())]
    watts = [card["power"] for card in cards if "power" in card and card.get("utilization", 0) > 50]
    return statistics.fmean(watts) if watts else None
