"""Time some real optimizer steps of a plan, started as the run itself would be."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

from ...errors import InputError
from ..backends import command
from ..backends.command import Command
from ..backends.interpreter import Interpreter, rank_module
from ..gpus.monitor import SAMPLES_FILE
from ..gpus.select import Devices
from ..planning.planner import FullPlan, PlanRequest, make_plan
from ..planning.throughput import Throughput
from ..script.arguments import parse_flags
from ..script.flags import set_flag
from ..stop_signals import stop_if_signalled, unwinding
from .run_record import utc_now
from .runner import LOG, OutputOptions, RunLimits, run

_GRACE = 1.0  # seconds that a stopped probe has to end in
_TAIL = 5  # lines of a failed probe that are shown

CommandBuilder = Callable[[Path, tuple[str, ...]], Command]
"""Makes the command that trains into a folder, with a module (and its options) run the script."""


@attrs.frozen
class ProbeResult:
    """The median seconds of an optimizer step, of the slowest rank.

    `reserved` is the peak of bytes that torch's allocator reserved on a card, `power` the cards'
    mean watts; None without a card.
    """

    seconds: float
    reserved: int | None
    power: float | None


@unwinding()
def probe_plan(
    asked: PlanRequest,
    devices: Devices,
    steps: int,
    backend: str | None = None,
    python: Interpreter | None = None,
) -> FullPlan:
    """Run `steps` optimizer steps of the plan, save what they show, and plan again with it.

    The ranks are started by `backend`, by default the one that starts fastest: the steps are the
    same with each. `python` runs them, by default ours.

    Raises:
        InputError: the script ends before, or there is no plan.
        SystemExit: the user stopped it.

    """
    first = make_plan(asked, devices)
    output = asked.recipe.flags.output
    backend = backend or ("direct" if first.plan.world > 1 else None)

    def build(folder: Path, prefix: tuple[str, ...]) -> Command:
        extra: Sequence[str] = asked.extra
        if output and output in parse_flags(extra):  # the user's is for the run itself
            extra = set_flag(extra, output, str(folder))
        return command.build(
            command.ScriptCall(
                asked.recipe, asked.script, first.plan, folder, extra, first.settings.arguments
            ),
            command.ProcessOptions(
                devices.indices,
                backend,
                module_prefix=prefix,
                python=python,
            ),
        )

    result = measure(build, steps, [gpu.index for gpu in devices.cards], python)
    paces = asked.throughput_history(devices)
    try:
        paces.store(_throughput(first, result), first.settings.precision.name)
    except OSError as error:
        raise InputError(f"{paces.state}: {error.strerror}: nothing can be kept there") from None
    return make_plan(asked, devices)


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
            output=OutputOptions(quiet=True),
            cards=cards,
        )
        stop_if_signalled()
        ranks = [json.loads(path.read_text()) for path in sorted(folder.glob("rank*.json"))]
        if outcome.status or not ranks:
            raise InputError(_failure_message(folder / "run" / LOG, outcome.cause, steps))
        return ProbeResult(
            seconds=max(statistics.median(rank["seconds"]) for rank in ranks),
            reserved=max((rank["reserved"] for rank in ranks if rank["reserved"]), default=None),
            power=_power(folder / "run" / SAMPLES_FILE),
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
