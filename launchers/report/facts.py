"""The figures of runs as rows of a table: the same in a terminal, on a page and in JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from .card_samples import CardSamples
from .reported_run import ReportedRun

GIB = 1 << 30


@attrs.frozen
class Fact:
    """A quantity, its value for each run (None: not known), and how a value is written."""

    name: str
    values: tuple[Any, ...]
    unit: str = ""

    @property
    def texts(self) -> list[str]:
        """The values as they are shown."""
        return [_text(value, self.unit) for value in self.values]

    @property
    def ratio(self) -> float | None:
        """The last run's number divided by the first one's; None where that says nothing."""
        first, last = self.values[0], self.values[-1]
        if len(self.values) < 2 or not _is_number(first) or not _is_number(last) or not first:
            return None
        return float(last) / float(first)


_QUANTITIES: list[tuple[str, str, Callable[[ReportedRun], Any]]] = [
    ("ended", "", lambda run: run.state),
    ("processes", "", lambda run: _plan(run, "world")),
    ("global batch", "", lambda run: _plan(run, "global_batch")),
    ("per-device batch", "", lambda run: _plan(run, "per_device")),
    ("gradient accumulation", "", lambda run: _plan(run, "accumulation")),
    ("precision", "", lambda run: _precision(run)),
    ("cards", "", lambda run: _cards(run)),
    ("attempts", "", lambda run: len(run.record.attempts) if run.record else None),
    ("duration", "s", lambda run: run.record.seconds if run.record else None),
    ("steps of the progress bar", "", lambda run: sum(one.steps for one in run.curves.passes)),
    ("time per pass", "s", lambda run: _pass_seconds(run)),
    ("time per step", "s", lambda run: run.curves.step_seconds),
    ("last loss", "", lambda run: run.curves.loss.last),
    ("last learning rate", "", lambda run: run.curves.rate.last),
    (
        "peak memory, predicted",
        "GiB",
        lambda run: _gib(run.record.predicted_memory if run.record else None),
    ),
    ("peak memory, used", "GiB", lambda run: _gib(_most(run, lambda card: card.peak_memory))),
    ("mean utilization", "%", lambda run: _mean(run, lambda card: card.mean_utilization)),
    ("mean power per card", "W", lambda run: _mean(run, lambda card: card.mean_power)),
]


def facts(runs: Sequence[ReportedRun]) -> list[Fact]:
    """The rows of a table of runs; those that are known of no run are left out."""
    rows = [Fact(name, tuple(map(value, runs)), unit) for name, unit, value in _QUANTITIES]
    scores = dict.fromkeys(name for run in runs for name in run.curves.scores)
    for name in scores:
        found = (run.curves.scores.get(name) for run in runs)
        rows.append(Fact(f"last {name}", tuple(curve.last if curve else None for curve in found)))
    return [row for row in rows if any(value not in (None, "", 0) for value in row.values)]


def _plan(run: ReportedRun, field: str) -> int | None:
    plan = run.record.plan if run.record else None
    return None if plan is None else int(getattr(plan, field))


def _precision(run: ReportedRun) -> str | None:
    known = run.record.precision if run.record else None
    return str(known["name"]) if known and "name" in known else None


def _cards(run: ReportedRun) -> str | None:
    if run.record is None:
        return None
    names = [str(card.get("name", "a card")) for card in run.record.cards]
    kinds = dict.fromkeys(names)
    return ", ".join(f"{names.count(kind)} x {kind}" for kind in kinds) or "none, on the CPU"


def _pass_seconds(run: ReportedRun) -> float | None:
    """Seconds of a whole pass over the training data, the mean of those that ended."""
    whole = [one.seconds for one in run.curves.passes if one.steps == one.length and one.seconds]
    return sum(whole) / len(whole) if whole else None


def _most(run: ReportedRun, value: Callable[[CardSamples], float | None]) -> float | None:
    return max(
        (one for card in run.cards.values() if (one := value(card)) is not None), default=None
    )


def _mean(run: ReportedRun, value: Callable[[CardSamples], float | None]) -> float | None:
    known = [one for card in run.cards.values() if (one := value(card)) is not None]
    return sum(known) / len(known) if known else None


def _gib(size: float | None) -> float | None:
    return None if size is None else size / GIB


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def _text(value: Any, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "s" and value >= 600:
        minutes, seconds = divmod(round(value), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{seconds:02}"
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return f"{text} {unit}".strip()
