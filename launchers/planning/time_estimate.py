"""Estimate the time and energy of a plan before anything runs."""

from __future__ import annotations

from collections.abc import Sequence

from ...record import record
from ..gpus.model import Gpu
from .candidates import format_percent
from .plan import Plan
from .probed import time_line
from .roofline import StepTime
from .throughput import Throughput
from .training_steps import Horizon

WATT_SECONDS = 3.6e6  # of a kilowatt-hour


@record
class Estimate:
    """Expected seconds of an optimizer step, an epoch and the whole training, without evaluation.

    `energy` is what the cards use for all of it in kWh; without a measured power it is an upper
    bound from the boards' power limits. `why` says where the step time comes from. None means not
    known.
    """

    step: float
    why: str
    epoch: float | None = None
    total: float | None = None
    energy: float | None = None
    energy_measured: bool = False

    @property
    def summary(self) -> list[str]:
        """A sentence on the time and one on the energy, without full stops."""
        times = [f"{format_duration(self.step)} an optimizer step"]
        if self.epoch is not None and self.total is not None:
            times += [
                f"{format_duration(self.epoch)} an epoch",
                f"{format_duration(self.total)} in all",
            ]
        sentences = [f"time: {', '.join(times)}, {self.why}"]
        if self.energy is not None:
            how = (
                "at the measured power" if self.energy_measured else "at most, by the boards' power"
            )
            sentences.append(f"energy of the cards: {self.energy:.2g} kWh {how}")
        return sentences


def estimate(
    plan: Plan,
    roofline: StepTime | None,
    pace: Throughput | None,
    horizon: Horizon | None,
    cards: Sequence[Gpu],
) -> Estimate | None:
    """Estimate a plan's time from its expected and its measured step time; None without either.

    `pace` may have been measured with another batch.
    """
    step_and_source = _step_seconds(plan, roofline, pace)
    if step_and_source is None:
        return None
    step, why = step_and_source
    if horizon is None:
        return Estimate(step, why)
    total = step * horizon.steps
    measured = pace.power if pace else None
    powers = [gpu.power_limit if measured is None else measured for gpu in cards]
    watts = sum(power or 0.0 for power in powers)
    energy = watts * total / WATT_SECONDS if powers and all(powers) else None
    epoch = step * horizon.steps_per_epoch
    return Estimate(step, why, epoch, total, energy, measured is not None)


def _step_seconds(
    plan: Plan, roofline: StepTime | None, pace: Throughput | None
) -> tuple[float, str] | None:
    """Seconds of an optimizer step, and where the number comes from."""
    if roofline is None and pace is None:
        return None
    if roofline is None or (pace is not None and pace.time is None):
        assert pace is not None
        ratio = plan.accumulation / pace.accumulation
        if pace.probed:
            line = time_line(pace.probed)
            ratio *= line.at(plan.per_device) / line.at(pace.per_device)
        else:
            ratio *= plan.per_device / pace.per_device
        measured = f"{pace.per_device} x {pace.accumulation} examples a process"
        return pace.seconds * ratio, f"as measured with {measured}"
    seconds = roofline.seconds * (pace.time or 1.0 if pace else 1.0)
    utilization = f"{format_percent(roofline.at_peak / seconds)} of the cards' peak"
    if pace is None:
        return (
            seconds,
            f"{utilization}, held up by {roofline.bottleneck}: not measured yet, --probe does",
        )
    return seconds, f"{utilization}, {pace.time:.2g} x what is expected unmeasured, as measured"


def format_duration(seconds: float) -> str:
    """Format a duration in seconds, minutes or hours."""
    for size, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
