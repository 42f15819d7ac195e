"""Some real optimizer steps of a plan, started as the run itself would be, and what they tell."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import click

from ...errors import InputError
from ..backends import command
from ..backends.command import Command
from ..gpus.monitor import SAMPLES
from ..gpus.select import Devices
from ..planning.planner import FullPlan, PlanRequest, planned
from ..planning.throughput import Throughput
from ..script.arguments import parse_flags
from ..script.flags import replaced
from .run_record import now
from .runner import LOG, run

TAIL = 5  # lines of a failed probe that are shown

Build = Callable[[Path, tuple[str, ...]], Command]
"""The command that trains into a folder, with the module that runs the script and its options."""


@attrs.frozen
class ProbeResult:
    """Seconds of an optimizer step, the slowest rank's median.

    `reserved` is the most bytes that torch held on a card, `power` the cards' mean watts; None
    stands for what there is no card to tell of.
    """

    seconds: float
    reserved: int | None
    power: float | None


def probed(
    asked: PlanRequest, devices: Devices, steps: int, backend: str | None = None
) -> FullPlan:
    """The plan, corrected by so many steps of what was planned before; what they tell is kept.

    The ranks are started by `backend`, or without one by the quickest: their steps are the same.

    Raises:
        InputError: the script does not get so far, or there is no plan.
        click.exceptions.Exit: the user stopped it.

    """
    first = planned(asked, devices)
    output = asked.recipe.flags.output
    backend = backend or ("direct" if first.plan.world > 1 else None)

    def build(folder: Path, prefix: tuple[str, ...]) -> Command:
        extra: Sequence[str] = asked.extra
        if output and output in parse_flags(extra):  # theirs is for the run itself
            extra = replaced(extra, output, str(folder))
        return command.build(
            asked.recipe,
            asked.script,
            first.plan,
            folder,
            cards=devices.indices,
            extra=extra,
            module_prefix=prefix,
            settings=first.settings.arguments,
            backend=backend,
        )

    found = measure(build, steps, [gpu.index for gpu in devices.cards])
    paces = asked.paces(devices)
    try:
        paces.keep(_pace(first, found), first.settings.precision.name)
    except OSError as error:
        raise InputError(f"{paces.state}: {error.strerror}: nothing can be kept there") from None
    return planned(asked, devices)


def _pace(first: FullPlan, found: ProbeResult) -> Throughput:
    """What was measured, held against what was predicted."""
    memory = None
    if first.fitting and found.reserved:
        corrected = (first.pace.memory if first.pace else None) or 1.0
        memory = found.reserved / first.fitting.chosen.peak.reserved * corrected
    return Throughput(
        when=now(),
        world=first.plan.world,
        per_device=first.plan.per_device,
        accumulation=first.plan.accumulation,
        seconds=found.seconds,
        time=found.seconds / first.roofline.seconds if first.roofline else None,
        memory=memory,
        power=found.power,
    )


def measure(build: Build, steps: int, cards: Sequence[int]) -> ProbeResult:
    """Run so many steps, and one before to warm up; nothing is kept of what the script writes.

    Raises:
        InputError: the script does not get so far.
        click.exceptions.Exit: the user stopped it.

    """
    with tempfile.TemporaryDirectory(prefix="ddpfix-probe-") as name:
        folder = Path(name)
        prefix = ("-m", f"{__package__}.probe_worker", "--out", str(folder), "--steps", str(steps))
        outcome = run(build(folder / "run", prefix), folder / "run", quiet=True, cards=cards)
        if outcome.cause.startswith("stopped by"):
            raise click.exceptions.Exit(outcome.status)
        ranks = [json.loads(path.read_text()) for path in sorted(folder.glob("rank*.json"))]
        if outcome.status or not ranks:
            raise InputError(_why(folder / "run" / LOG, outcome.cause, steps))
        return ProbeResult(
            seconds=max(statistics.median(rank["seconds"]) for rank in ranks),
            reserved=max((rank["reserved"] for rank in ranks if rank["reserved"]), default=None),
            power=_power(folder / "run" / SAMPLES),
        )


def _why(log: Path, cause: str, steps: int) -> str:
    if cause == "finished":
        return f"--probe {steps}: the script ended before it had taken {steps + 1} optimizer steps"
    last = log.read_text("utf-8", errors="replace").splitlines()[-TAIL:]
    return "\n".join([f"--probe {steps}: the script {cause}; its last lines:", *last])


def _power(samples: Path) -> float | None:
    """The mean over all looks at cards at work, in watts."""
    if not samples.exists():
        return None
    looks: list[dict[str, Any]] = [json.loads(line) for line in samples.read_text().splitlines()]
    cards = [card for look in looks for card in look.get("gpus", ())]
    watts = [card["power"] for card in cards if "power" in card and card.get("utilization", 0) > 50]
    return statistics.fmean(watts) if watts else None
