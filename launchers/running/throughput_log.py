"""What a run that has ended tells of the pace of such trainings: kept for the next plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...record import changed
from ..gpus.select import Devices
from ..planning.plan import Plan
from ..planning.planner import FullPlan, PlanRequest
from ..planning.throughput import Throughput
from ..planning.training_steps import steps_per_epoch
from .history import read
from .run_record import now

ENOUGH = 20  # steps of a bar; fewer tell more of the start than of the pace


def remember(asked: PlanRequest, devices: Devices, found: FullPlan, folder: Path) -> None:
    """Keep the time of a step, if a progress bar of the run in `folder` told it.

    A bar's steps are micro-batches or optimizer steps: which, its length tells. Nothing is kept of
    a run that was started anew with another plan.

    Raises:
        InputError: the run's record cannot be read.
        OSError: it cannot be kept.

    """
    attempts: list[dict[str, Any]] = read(folder).record["attempts"]
    if found.settings.horizon is None or len(attempts) != 1:
        return
    seconds = step_seconds(found.plan, found.settings.horizon.examples, attempts[0]["units"])
    if seconds is None:
        return
    before = found.pace
    pace = Throughput(
        when=now(),
        world=found.plan.world,
        per_device=found.plan.per_device,
        accumulation=found.plan.accumulation,
        seconds=seconds,
        time=seconds / found.roofline.seconds if found.roofline else None,
    )
    if before is not None:  # which a probe has measured
        pace = changed(pace, memory=before.memory, power=before.power)
    asked.paces(devices).keep(pace, found.settings.precision.name)


def step_seconds(plan: Plan, examples: int, units: dict[str, list[float]]) -> float | None:
    """Seconds of an optimizer step, from bars by their length: how far each came, in what time."""
    micro = steps_per_epoch(examples, changed(plan, accumulation=1))
    for length, times in ((micro, plan.accumulation), (steps_per_epoch(examples, plan), 1)):
        done, seconds = units.get(str(length), (0, 0.0))
        if done >= ENOUGH:
            return seconds / done * times
    return None
