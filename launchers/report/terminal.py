"""Print the figures of runs as tables, with each curve as a row of blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .curves import LogCurve
from .facts import facts
from .reported_run import ReportedRun
from .verdict import StoredVerdict

if TYPE_CHECKING:
    from rich.console import Console

_BLOCKS = "▁▂▃▄▅▆▇█"
_WIDTH = 32  # columns of a curve
STYLES = {"holds": "green", "broken": "red", "unproven": "yellow"}


def show(runs: Sequence[ReportedRun], verdict: StoredVerdict | None, console: Console) -> None:
    """Print the rows of the runs, their curves, and the verdict."""
    from rich.markup import escape
    from rich.table import Table

    table = Table("", *(escape(run.name) for run in runs), box=None, pad_edge=False)
    if len(runs) > 1:
        table.add_column("last / first", justify="right")
    for fact in facts(runs):
        ratio = [] if len(runs) == 1 else ["" if fact.ratio is None else f"{fact.ratio:.2f}"]
        table.add_row(fact.name, *map(escape, fact.texts), *ratio)
    console.print(table)
    drawn = [(run, *row) for run in runs for row in _drawn(run)]
    if drawn:
        curves = Table("", "", "first", "", "last", box=None, pad_edge=False)
        for run, name, curve in drawn:
            first, last = (f"{value:.4g}" for value in (curve.values[0], curve.values[-1]))
            curves.add_row(escape(run.name), escape(name), first, blocks(curve.values), last)
        console.print("", curves)
    if verdict:
        rows = Table("", "promise", "evidence", box=None, pad_edge=False)
        for row in verdict.rows:
            style = STYLES.get(row.status, "dim")
            title = escape(f"{row.code} {row.title}")
            rows.add_row(f"[{style}]{row.status}[/]", title, escape(row.evidence))
        console.print("", escape(verdict.compared), rows)


def _drawn(run: ReportedRun) -> Iterator[tuple[str, LogCurve]]:
    known = {"loss": run.curves.loss, "learning rate": run.curves.rate, "steps/s": run.curves.pace}
    for name, curve in {**known, **run.curves.scores}.items():
        if len(curve.steps) > 1:
            yield name, curve


def blocks(values: Sequence[float], width: int = _WIDTH) -> str:
    """The values as blocks of eight heights, means of neighbours where they are many."""
    size = max(1, math.ceil(len(values) / width))
    groups = [values[place : place + size] for place in range(0, len(values), size)]
    means = [sum(group) / len(group) for group in groups]
    finite = [mean for mean in means if math.isfinite(mean)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    span = (high - low) or 1.0
    return "".join(
        _BLOCKS[round((mean - low) / span * (len(_BLOCKS) - 1))] if math.isfinite(mean) else "?"
        for mean in means
    )
