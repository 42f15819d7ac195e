"""Hand the figures of runs to other tools: JSON, a Prometheus text file, TensorBoard, W&B."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...errors import InputError
from .curves import LogCurve
from .facts import facts
from .reported_run import ReportedRun


def as_json(runs: Sequence[ReportedRun]) -> dict[str, Any]:
    """The rows and curves of the runs, as JSON can hold them; steps are the progress bar's."""
    rows = facts(runs)
    return {
        "schema": 1,
        "runs": [
            {
                "run": run.name,
                "facts": {
                    row.name: {"value": row.values[place], "unit": row.unit or None} for row in rows
                },
                "curves": {
                    name: {"steps": curve.steps, "values": curve.values}
                    for name, curve in named_curves(run)
                },
                "seconds_per_step": {
                    str(rank): curves.step_seconds for rank, curves in run.ranks.items()
                },
            }
            for place, run in enumerate(runs)
        ],
    }


def named_curves(run: ReportedRun) -> Iterator[tuple[str, LogCurve]]:
    """The curves of a run that have a value, by the names that other tools show."""
    own = {
        "loss": run.curves.loss,
        "learning_rate": run.curves.rate,
        "steps_per_second": run.curves.pace,
    }
    for name, curve in {**own, **run.curves.scores}.items():
        if curve.steps:
            yield name, curve


def write_prometheus(runs: Sequence[ReportedRun], path: Path) -> None:
    """Write the numbers of the runs for node_exporter's textfile collector.

    Raises InputError where prometheus_client is not installed or the file cannot be written.
    """
    try:
        from prometheus_client import CollectorRegistry, Gauge, write_to_textfile
    except ImportError:
        raise InputError("--prometheus needs prometheus-client: pip install it") from None
    registry = CollectorRegistry()
    number = Gauge("ddpfix_run", "A figure of a run", ["run", "figure", "unit"], registry=registry)
    for row in facts(runs):
        for run, value in zip(runs, row.values, strict=True):
            if isinstance(value, (int, float)):
                number.labels(run.name, row.name, row.unit).set(value)
    try:
        write_to_textfile(str(path), registry)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None


def write_tensorboard(runs: Sequence[ReportedRun], folder: Path) -> None:
    """Write the curves of each run to a folder of its own below `folder`.

    Raises InputError where torch or tensorboard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError("--tensorboard needs torch and tensorboard: pip install them") from None
    for run in runs:
        with SummaryWriter(str(folder / run.name)) as writer:
            for name, curve in named_curves(run):
                for step, value in zip(curve.steps, curve.values, strict=True):
                    writer.add_scalar(name, value, step)


def write_wandb(runs: Sequence[ReportedRun], project: str) -> None:
    """Write each run as one of a project of Weights & Biases, online or not as it is set up there.

    Raises InputError where wandb is not installed, or does not take it.
    """
    try:
        import wandb
    except ImportError:
        raise InputError("--wandb needs wandb: pip install it") from None
    rows = facts(runs)
    for place, run in enumerate(runs):
        figures = {row.name: row.values[place] for row in rows if row.values[place] is not None}
        try:
            with wandb.init(project=project, name=run.name, job_type="ddpfix report") as written:
                for step, values in sorted(_by_step(run).items()):
                    written.log(values, step=step)
                written.summary.update(figures)
        except (wandb.Error, OSError) as error:
            first = str(error).partition("\n")[0]
            raise InputError(f"--wandb: {first}; WANDB_MODE=offline needs no network") from None


def _by_step(run: ReportedRun) -> dict[int, dict[str, float]]:
    """The values of all curves by their step, as W&B takes a step once."""
    found: dict[int, dict[str, float]] = {}
    for name, curve in named_curves(run):
        for step, value in zip(curve.steps, curve.values, strict=True):
            found.setdefault(step, {})[name] = value
    return found
