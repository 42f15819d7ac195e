"""How long a plan takes, and how much energy: what is expected before anything runs."""

from __future__ import annotations

from collections.abc import Sequence

from ...record import record
from ..gpus.model import Gpu
from .candidates import in_percent
from .plan import Plan
from .roofline import StepTime
from .throughput import Throughput
from .training_steps import Horizon

WATT_SECONDS = 3.6e6  # of a kilowatt-hour


@record
class Estimate:
    """Expected seconds of an optimizer step, of an epoch and of all, training alone.

    `energy` is that of the cards for all of it in kWh; without a measured power it is what their
    boards may take at most. `why` says where the pace is from. None is what is not known.
    """

    step: float
    why: str
    epoch: float | None = None
    total: float | None = None
    energy: float | None = None
    energy_measured: bool = False

    @property
    def said(self) -> list[str]:
        """One sentence on each, without its full stop."""
        times = [f"{in_words(self.step)} an optimizer step"]
        if self.epoch is not None and self.total is not None:
            times += [f"{in_words(self.epoch)} an epoch", f"{in_words(self.total)} in all"]
        told = [f"time: {', '.join(times)}, {self.why}"]
        if self.energy is not None:
            how = (
                "at the measured power" if self.energy_measured else "at most, by the boards' power"
            )
            told.append(f"energy of the cards: {self.energy:.2g} kWh {how}")
        return told


def estimate(
    plan: Plan,
    roofline: StepTime | None,
    pace: Throughput | None,
    horizon: Horizon | None,
    cards: Sequence[Gpu],
) -> Estimate | None:
    """The estimate of a plan, by what its step is expected to take; None where nothing is known.

    `pace` is what was measured of such a training, be it with another batch.
    """
    found = _step(plan, roofline, pace)
    if found is None:
        return None
    step, why = found
    if horizon is None:
        return Estimate(step, why)
    total = step * horizon.steps
    measured = pace.power if pace else None
    powers = [gpu.power_limit if measured is None else measured for gpu in cards]
    watts = sum(power or 0.0 for power in powers)
    energy = watts * total / WATT_SECONDS if powers and all(powers) else None
    epoch = step * horizon.steps_per_epoch
    return Estimate(step, why, epoch, total, energy, measured is not None)


def _step(
    plan: Plan, roofline: StepTime | None, pace: Throughput | None
) -> tuple[float, str] | None:
    """Seconds, and where they are from."""
    if roofline is None and pace is None:
        return None
    if roofline is None or (pace is not None and pace.time is None):
        assert pace is not None
        ratio = plan.per_device * plan.accumulation / (pace.per_device * pace.accumulation)
        measured = f"{pace.per_device} x {pace.accumulation} examples a process"
        return pace.seconds * ratio, f"as measured with {measured}"
    seconds = roofline.seconds * (pace.time or 1.0 if pace else 1.0)
    part = f"{in_percent(roofline.peak / seconds)} of the cards' peak"
    if pace is None:
        return seconds, f"{part}, held up by {roofline.bound}: not measured yet, --probe does"
    return seconds, f"{part}, {pace.time:.2g} x what is expected unmeasured, as measured"


def in_words(seconds: float) -> str:
    """A time in the unit that suits it."""
    for size, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
