"""Print a verdict as tables on a terminal or as plain text, or turn it into JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from . import trace_compare as compare
from .check_evaluation import evaluation_scores
from .evidence import Row, RunTrace

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from .verifier import Verdict

MARKS = {"holds": "✓", "broken": "✗", "unproven": "?", "not judged": "-"}
COLOURS = {"holds": "green", "broken": "red", "unproven": "yellow", "not judged": "dim"}
MAX_STEPS_SHOWN = 14
"""Of runs with more optimizer steps, only the first, worst and last ones are shown."""


def show(verdict: Verdict, console: Console) -> None:
    """Print steps, evaluations, files, collectives and times, then the rows of the contract."""
    console.print(verdict.summary, soft_wrap=True, markup=False)
    for table in (
        _steps(verdict),
        _evaluations(verdict.runs),
        _writers(verdict.runs),
        _ranks(verdict.runs),
        _times(verdict.runs),
        _rows(verdict.rows),
    ):
        if table.row_count:
            _style(table, console)
            console.print(table)
    for note in verdict.notes:
        console.print(f"note: {note}", soft_wrap=True, markup=False)
    if verdict.hang:
        console.print(f"hang: {verdict.hang}", soft_wrap=True, markup=False)
    for rank, frames in verdict.stacks.items():
        console.print(f"{rank}, innermost last:", markup=False)
        for frame in frames:
            console.print(f"  {frame}", soft_wrap=True, markup=False)


def _style(table: Table, console: Console) -> None:
    if not console.is_terminal:
        table.box = None
        table.title_justify = "left"


def _table(title: str, *columns: str, numbers: bool = False) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left", pad_edge=False)
    for position, column in enumerate(columns):
        justify: Literal["left", "right"] = "right" if numbers and position else "left"
        table.add_column(column, justify=justify, overflow="fold")
    return table


def _steps(verdict: Verdict) -> Table:
    runs = verdict.runs
    steps_of_runs = [compare.steps(run.ranks) for run in runs]
    table = _table(
        "Loss, gradient norm before clipping, learning rate of every optimizer step",
        *["step", *(run.name for run in runs)],
        numbers=True,
    )
    longest = max(map(len, steps_of_runs))
    first_group = len(runs) - len(verdict.evidence.groups)
    previous = 0
    for number in _step_numbers(steps_of_runs, longest, first_group):
        if number > previous + 1:
            table.add_row("…")
        previous = number
        cells = []
        for steps in steps_of_runs:
            if number <= len(steps):
                step = steps[number - 1]
                cells.append(f"{step.loss:.7f} {step.norm:.6f} {step.lr:.3g}")
            else:
                cells.append("")
        table.add_row(str(number), *cells)
    return table


def _step_numbers(
    steps_of_runs: Sequence[Sequence[compare.StepNumbers]], longest: int, first_group: int
) -> list[int]:
    """Step numbers to show: all, or the first, the worst and the last ones."""
    if longest <= MAX_STEPS_SHOWN:
        return list(range(1, longest + 1))
    worst = set()
    reference = steps_of_runs[first_group]
    for steps in steps_of_runs[first_group + 1 :]:
        common = min(len(reference), len(steps))
        for quantity in ("loss", "norm", "lr"):
            worst.add(
                compare.deviation(reference[:common], steps[:common], quantity).step or longest
            )
    shown = {*range(1, 6), *worst, *range(longest - 4, longest + 1)}
    return sorted(shown)


def _evaluations(runs: Sequence[RunTrace]) -> Table:
    table = _table(
        "Evaluations", "run", "number", "examples", "seen", "missing", "repeated", "in order"
    )
    for run in runs:
        for number, coverage in enumerate(compare.evaluations(run.ranks), 1):
            table.add_row(
                run.name,
                str(number),
                str(coverage.length),
                str(len(set(coverage.indices))),
                str(coverage.missing),
                str(coverage.repeated),
                "yes" if coverage.in_order else "no",
            )
    return table


def _writers(runs: Sequence[RunTrace]) -> Table:
    table = _table("Writers of each file", "file", *[run.name for run in runs])
    writers = [compare.writers(run.ranks, run.live_output) for run in runs]
    for name in sorted({name for files in writers for name in files}):
        cells = [", ".join(map(str, sorted(files.get(name, ())))) for files in writers]
        table.add_row(name, *[f"rank {cell}" if cell else "" for cell in cells])
    return table


def _ranks(runs: Sequence[RunTrace]) -> Table:
    table = _table(
        "Ranks",
        *("run", "rank", "exit status", "steps", "all-reduces per step", "collectives", "scores"),
    )
    for run in runs:
        for trace in run.ranks:
            reduces = sorted(set(compare.all_reduces_per_step(trace)))
            last = dict(evaluation_scores(run.ranks, trace))
            table.add_row(
                run.name,
                str(trace.rank),
                str(trace.status),
                str(len(trace.steps)),
                ", ".join(map(str, reduces)),
                str(sum(step.collectives for step in trace.steps)),
                ", ".join(f"{key} {value:g}" for key, value in last.items()),
            )
    return table


def _times(runs: Sequence[RunTrace]) -> Table:
    table = _table(
        "Seconds", "run", "all", "import", "set-up", "train", "eval", "rest", numbers=True
    )
    for run in runs:
        phases = run.ranks[0].phases()
        seconds = [run.outcome.seconds, *phases.values()]
        table.add_row(run.name, *[f"{value:.1f}" for value in seconds])
    return table


def _rows(rows: Sequence[Row]) -> Table:
    from rich.markup import escape

    table = _table("Verdict", "", "promise", "verdict", "evidence")
    for row in rows:
        colour = COLOURS[row.status]
        table.add_row(
            f"[{colour}]{MARKS[row.status]}[/]",
            f"{row.code} {row.title}",
            f"[{colour}]{row.status}[/]",
            escape(row.evidence),
        )
    return table


def as_json(verdict: Verdict) -> dict[str, Any]:
    """The whole verdict as data for JSON; all times are in seconds."""
    return {
        "schema": 1,
        "holds": verdict.holds,
        "exit_status": verdict.exit_status,
        "compared": verdict.summary,
        "rows": [
            {
                "code": row.code,
                "title": row.title,
                "status": row.status,
                "evidence": row.evidence,
            }
            for row in verdict.rows
        ],
        "runs": [_run(run) for run in verdict.runs],
        "notes": list(verdict.notes),
        "hang": verdict.hang or None,
        "stacks": verdict.stacks,
    }


def _run(run: RunTrace) -> dict[str, Any]:
    return {
        "name": run.name,
        "world_size": run.world_size,
        "accumulation": run.accumulation,
        "exit_status": run.outcome.status,
        "cause": run.outcome.cause,
        "seconds": run.outcome.seconds,
        "phases": run.ranks[0].phases(),
        "steps": [
            {"loss": step.loss, "norm": step.norm, "lr": step.lr}
            for step in compare.steps(run.ranks)
        ],
        "evaluations": [
            {
                "dataset": each.dataset,
                "examples": each.length,
                "missing": each.missing,
                "repeated": each.repeated,
                "in_order": each.in_order,
            }
            for each in compare.evaluations(run.ranks)
        ],
        "writers": {k: sorted(v) for k, v in compare.writers(run.ranks, run.live_output).items()},
        "ranks": [
            {
                "rank": trace.rank,
                "exit_status": trace.status,
                "steps": len(trace.steps),
                "all_reduces": compare.all_reduces_per_step(trace),
                "collectives": [step.collectives for step in trace.steps],
                "scores": [[key, value] for key, value in evaluation_scores(run.ranks, trace)],
            }
            for trace in run.ranks
        ],
    }
