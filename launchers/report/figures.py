"""Draw the figures of a report with plotly: each run has its colour in all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from .card_samples import CardSamples
from .curves import LogCurve
from .facts import GIB
from .reported_run import ReportedRun

if TYPE_CHECKING:
    import plotly.graph_objects as plotly

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Told apart by the colour-blind (Okabe and Ito, Color Universal Design, 2008), and readable on
white as on black."""
_HEIGHT = 340  # pixels


@attrs.frozen
class Figure:
    """A figure of a report: its name in the page, its heading, a sentence on it, and the plot."""

    name: str
    title: str
    note: str
    plot: plotly.Figure


def figures(runs: Sequence[ReportedRun]) -> list[Figure]:
    """The figures that there is something to draw of."""
    import plotly.graph_objects as plotly

    found = []
    for name, title, note, axes, draw in _FIGURES:
        traces = list(draw(runs))
        if traces:
            x, y = axes
            plot = plotly.Figure(traces)
            plot.update_layout(
                height=_HEIGHT,
                margin={"l": 64, "r": 16, "t": 16, "b": 48},
                paper_bgcolor="rgba(0,0,0,0)",
                plot_bgcolor="rgba(0,0,0,0)",
                xaxis_title=x,
                yaxis_title=y,
                showlegend=True,
                legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
                barmode="group",
            )
            found.append(Figure(name, title, note, plot))
    return found


def _line(run: str, name: str, colour: str, x: Sequence[Any], y: Sequence[Any], **more: Any) -> Any:
    import plotly.graph_objects as plotly

    label = f"{run}: {name}" if name else run
    return plotly.Scatter(x=list(x), y=list(y), name=label, line={"color": colour} | more)


def _curves(runs: Sequence[ReportedRun], curve: Callable[[ReportedRun], LogCurve]) -> Iterator[Any]:
    for run, colour in zip(runs, _colours(runs), strict=True):
        one = curve(run)
        if one.steps:
            yield _line(run.name, "", colour, one.steps, one.values)


def _scores(runs: Sequence[ReportedRun]) -> Iterator[Any]:
    dashes = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
    names = list(dict.fromkeys(name for run in runs for name in run.curves.scores))
    for run, colour in zip(runs, _colours(runs), strict=True):
        for name, one in run.curves.scores.items():
            dash = dashes[names.index(name) % len(dashes)]
            trace = _line(run.name, name, colour, one.steps, one.values, dash=dash)
            yield trace.update(mode="lines+markers")


def _step_times(runs: Sequence[ReportedRun]) -> Iterator[Any]:
    def value(run: ReportedRun) -> Iterator[tuple[str, float | None]]:
        for rank, curves in (run.ranks or {0: run.curves}).items():
            yield f"rank {rank}", curves.step_seconds

    return _bars(runs, value)


def _memory(runs: Sequence[ReportedRun]) -> Iterator[Any]:
    def value(run: ReportedRun) -> Iterator[tuple[str, float | None]]:
        predicted = run.record.predicted_memory if run.record else None
        if run.cards:
            yield "predicted", None if predicted is None else predicted / GIB
        for card, samples in run.cards.items():
            peak = samples.peak_memory
            yield f"card {card}", None if peak is None else peak / GIB

    return _bars(runs, value)


def _bars(
    runs: Sequence[ReportedRun],
    values: Callable[[ReportedRun], Iterable[tuple[str, float | None]]],
) -> Iterator[Any]:
    import plotly.graph_objects as plotly

    for run, colour in zip(runs, _colours(runs), strict=True):
        known = [(label, value) for label, value in values(run) if value is not None]
        if known:
            labels, heights = zip(*known, strict=True)
            yield plotly.Bar(
                x=list(labels), y=list(heights), name=run.name, marker={"color": colour}
            )


def _samples(
    quantity: Callable[[CardSamples], Sequence[float | None]], unit: float = 1
) -> Callable[[Sequence[ReportedRun]], Iterator[Any]]:
    """Draws a quantity of every card over time."""

    def draw(runs: Sequence[ReportedRun]) -> Iterator[Any]:
        for run, colour in zip(runs, _colours(runs), strict=True):
            for card, samples in run.cards.items():
                values = [None if one is None else one / unit for one in quantity(samples)]
                if any(one is not None for one in values):
                    yield _line(run.name, f"card {card}", colour, samples.seconds, values)

    return draw


def _colours(runs: Sequence[ReportedRun]) -> list[str]:
    return [COLOURS[place % len(COLOURS)] for place in range(len(runs))]


_STEPS = "steps of the training's progress bar"
_SECONDS = "seconds from the start"
_FIGURES: list[
    tuple[str, str, str, tuple[str, str], Callable[[Sequence[ReportedRun]], Iterator[Any]]]
] = [
    (
        "loss",
        "Loss",
        "As the log prints it, on the first rank.",
        (_STEPS, "loss"),
        lambda runs: _curves(runs, lambda run: run.curves.loss),
    ),
    (
        "rate",
        "Learning rate",
        "As the log prints it.",
        (_STEPS, "learning rate"),
        lambda runs: _curves(runs, lambda run: run.curves.rate),
    ),
    ("scores", "Scores", "Where the training was when each was printed.", (_STEPS, ""), _scores),
    (
        "pace",
        "Throughput",
        "As the progress bar says it, smoothed.",
        (_STEPS, "steps per second"),
        lambda runs: _curves(runs, lambda run: run.curves.pace),
    ),
    (
        "step_times",
        "Time per step of each rank",
        "All ranks wait for the slowest one: they are alike unless one reads or evaluates alone.",
        ("", "seconds per step"),
        _step_times,
    ),
    (
        "memory",
        "Memory, predicted and used",
        "Used: the most in a second's sample, by everything on the card.",
        ("", "GiB"),
        _memory,
    ),
    (
        "card_memory",
        "Memory of the cards",
        "",
        (_SECONDS, "GiB"),
        _samples(lambda card: card.memory, GIB),
    ),
    (
        "utilization",
        "Use of the cards",
        "The share of time in which something ran on the card.",
        (_SECONDS, "%"),
        _samples(lambda card: card.utilization),
    ),
    ("power", "Power of the cards", "", (_SECONDS, "W"), _samples(lambda card: card.power)),
]
