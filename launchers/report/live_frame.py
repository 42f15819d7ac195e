"""The lines of the view of a run: its step, time left, loss, cards, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from ..running.view import CardSample, RunState
from .live_figures import LiveFigures
from .terminal import blocks

GIB = 1 << 30
_INDENT = 9  # columns of the names on the left
_RECENT = 10.0  # seconds for which another bar than the training's is of interest
_CURVE = 24  # columns


@attrs.frozen
class CardFacts:
    """A card of the run: its memory in bytes and its power limit in watts, where they are known."""

    memory: int = 0
    power_limit: float | None = None


@attrs.frozen
class RunTitle:
    """What is known of a run before it starts. `predicted` is the peak memory of a card."""

    name: str
    processes: int
    predicted: int | None = None
    cards: Mapping[int, CardFacts] = attrs.field(factory=dict)
    passes: Mapping[int, float] = attrs.field(factory=dict)


@attrs.frozen
class ViewRow:
    """A line: its name on the left, what it says, and a colour."""

    name: str
    text: str
    style: str = ""


def frame(
    run: RunTitle,
    figures: LiveFigures,
    state: RunState,
    unfinished: Sequence[str],
    now: float,
    size: tuple[int, int],
) -> list[ViewRow]:
    """The view's lines for a terminal of so many columns and lines."""
    columns, lines = size
    room = max(1, lines - 2)
    waits = state.waits_for
    head = [_title(run, state, columns), _step(figures, columns), *_left(figures, now)]
    tail = [
        *_loss(figures, columns),
        *_other(figures, now),
        *(ViewRow("output", text) for text in list(unfinished)[-2:]),
        *([ViewRow("waits", f"for {waits}", "yellow")] if waits else []),
    ]
    samples = state.cards()
    cards = list(_cards(run, samples, max(1, columns // 80)))
    if len(head) + len(tail) + len(cards) > room:
        cards = list(_all_cards(run, samples))
    rows = [*head, *cards, *tail]
    if len(rows) > room:  # what it waits for last of all
        rows = [*rows[: room - 1], rows[-1]]
    return rows


def _title(run: RunTitle, state: RunState, columns: int) -> ViewRow:
    kind = "process" if run.processes == 1 else "processes"
    text = f"── {run.name} · {run.processes} {kind} · {clock(state.seconds)} "
    return ViewRow("", text + "─" * (columns - len(text) - 1), "dim")


def _step(figures: LiveFigures, columns: int) -> ViewRow:
    seen = figures.training
    if seen is None:
        step = "none so far" if figures.step is None else str(figures.step)
        return ViewRow("step", step)
    bar = seen.bar
    share = min(1.0, bar.step / bar.steps) if bar.steps else 0.0
    words = [f"{bar.step} of {bar.steps}"]
    if figures.passes_done or figures.passes_expected:
        expected = figures.passes_expected
        of = f" of {expected:g}" if expected else ""
        words.append(f"pass {figures.passes_done + 1}{of}")
    pace = figures.pace
    if pace:
        words.append(f"{pace:.3g} steps/s" if pace >= 1 else f"{1 / pace:.3g} s/step")
    text = "  ".join(words)
    width = min(40, columns - _INDENT - len(text) - 12)
    drawn = f"{bar_of(share, width)} {share:4.0%}  " if width > 3 else ""
    return ViewRow("step", f"{drawn}{text}", "cyan")


def bar_of(share: float, width: int) -> str:
    """A share as a bar."""
    full = round(share * width)
    return "━" * full + "─" * (width - full)


def _left(figures: LiveFigures, now: float) -> Iterator[ViewRow]:
    left = figures.seconds_left(now)
    if left is not None:
        one, whole = left
        of_pass = f"{clock(one)} of this pass" if whole is not None else clock(one)
        yield ViewRow("left", of_pass if whole is None else f"{of_pass}, {clock(whole)} in all")


def _loss(figures: LiveFigures, columns: int) -> Iterator[ViewRow]:
    words = []
    if figures.loss.values:
        width = min(_CURVE, columns - 60)
        curve = f" {blocks(figures.loss.values, width)}" if width > 0 else ""
        words.append(f"{figures.loss.values[-1]:.4g}{curve}")
    if figures.rate is not None:
        words.append(f"learning rate {figures.rate:.3g}")
    if words:
        yield ViewRow("loss" if figures.loss.values else "", "   ".join(words))
    if figures.scores:
        newest = list(figures.scores.items())[-6:]
        yield ViewRow("scores", "  ".join(f"{name} {value:.4g}" for name, value in newest))


def _other(figures: LiveFigures, now: float) -> Iterator[ViewRow]:
    """A bar that moved after the training's: an evaluation's, as a rule."""
    seen, training = figures.other, figures.training
    if seen is None or (training is not None and training.when > seen.when):
        return
    if now - seen.when < _RECENT:
        label = f"{seen.label}: " if seen.label else ""
        yield ViewRow("also", f"{label}{seen.bar.step} of {seen.bar.steps}")


def _cards(run: RunTitle, samples: Sequence[CardSample], abreast: int) -> Iterator[ViewRow]:
    texts = [
        (f"card {sample['index']}", _card(sample, run.cards.get(int(sample["index"])), run))
        for sample in samples
    ]
    for place in range(0, len(texts), abreast):
        (name, first), *others = texts[place : place + abreast]
        beside = "".join(f"{other_name:{_INDENT}}{text:62}" for other_name, text in others)
        yield ViewRow(name, f"{first:62}{beside}".rstrip())


def _card(sample: CardSample, card: CardFacts | None, run: RunTitle) -> str:
    used = sample["memory_used"] / GIB
    words = [f"{sample['utilization']:3} %"] if "utilization" in sample else []
    if run.predicted:
        words.append(f"{used:.1f} GiB of {run.predicted / GIB:.1f} predicted")
    elif card and card.memory:
        words.append(f"{used:.1f} of {card.memory / GIB:.1f} GiB")
    else:
        words.append(f"{used:.1f} GiB")
    if "power" in sample:
        limit = f" of {card.power_limit:.0f}" if card and card.power_limit else ""
        words.append(f"{sample['power']:.0f}{limit} W")
    return "   ".join(words)


def _all_cards(run: RunTitle, samples: Sequence[CardSample]) -> Iterator[ViewRow]:
    """The cards in one line, where they have not the room for one each."""
    if not samples:
        return
    words = []
    loads = [sample["utilization"] for sample in samples if "utilization" in sample]
    if loads:
        words.append(f"{min(loads)} to {max(loads)} %")
    most = max(sample["memory_used"] for sample in samples) / GIB
    predicted = f" of {run.predicted / GIB:.1f} predicted" if run.predicted else ""
    words.append(f"at most {most:.1f} GiB{predicted}")
    watts = [sample["power"] for sample in samples if "power" in sample]
    if watts:
        words.append(f"{sum(watts):.0f} W in all")
    yield ViewRow(f"{len(samples)} cards", "   ".join(words))


def clock(seconds: float) -> str:
    """A duration as 1:02:03, or 2:03 below an hour."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
