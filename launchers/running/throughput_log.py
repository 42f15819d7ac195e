"""Record a finished run's step time for the next plan."""

from __future__ import annotations

from pathlib import Path

from ...record import replace
from ..gpus.select import Devices
from ..planning.plan import Plan
from ..planning.planner import FullPlan, PlanRequest
from ..planning.throughput import Throughput
from ..planning.training_steps import steps_per_epoch
from ..state_files import read
from .run_record import RECORD, utc_now
from .stored_run import StoredAttempts

_MIN_STEPS = 20  # of a progress bar; with fewer, the start-up of the run weighs too much


def record_throughput(asked: PlanRequest, devices: Devices, found: FullPlan, folder: Path) -> None:
    """Save the step time that the progress bars of the run in `folder` show, if they do.

    The length of a bar tells whether its steps are micro-batches or optimizer steps. Nothing is
    saved of a run with several attempts, as these may have had different plans.

    Raises:
        InputError: the run's record cannot be read.
        OSError: the time cannot be written.

    """
    attempts = read(folder / RECORD, StoredAttempts).attempts
    if found.settings.horizon is None or len(attempts) != 1:
        return
    seconds = step_seconds(found.plan, found.settings.horizon.examples, attempts[0].units)
    if seconds is None:
        return
    previous = found.throughput
    pace = Throughput(
        when=utc_now(),
        world=found.plan.world,
        per_device=found.plan.per_device,
        accumulation=found.plan.accumulation,
        seconds=seconds,
        time=seconds / found.roofline.seconds if found.roofline else None,
    )
    if previous is not None:  # only a probe measures memory and power
        pace = replace(pace, memory=previous.memory, power=previous.power, probed=previous.probed)
    asked.throughput_history(devices).store(pace, found.settings.precision.name)


def step_seconds(plan: Plan, examples: int, units: dict[str, list[float]]) -> float | None:
    """Seconds per optimizer step, from progress bars: their length -> (steps done, seconds)."""
    micro = steps_per_epoch(examples, replace(plan, accumulation=1))
    for length, times in ((micro, plan.accumulation), (steps_per_epoch(examples, plan), 1)):
        done, seconds = units.get(str(length), (0, 0.0))
        if done >= _MIN_STEPS:
            return seconds / done * times
    return None
