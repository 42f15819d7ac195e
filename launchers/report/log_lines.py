"""Read one line of a training's log: the progress bar, loss, learning rate and scores on it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import attrs

from ..running.library_bars import LIBRARY_BAR

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
# As tqdm draws it: "epoch 0:  45%|####      | 9/20 [00:12<00:15,  1.31s/it, loss=0.69]".
_BAR = re.compile(
    r"\d+%\|.*?\|\s*(?P<step>\d+)/(?P<steps>\d+) "
    r"\[(?:(?P<hours>\d+):)?(?P<minutes>\d+):(?P<seconds>\d+)"
    r"(?:<[^,\]]*,\s*(?P<pace>[\d.]+)\s*(?P<unit>[^\s,\]]+))?"
)
# As torch's own examples print it: "Epoch: [0][ 10/5005]", "[640/60000 (1%)]".
_POSITION = re.compile(r"\[\s*(\d+)/(\d+)(?:\]| \()")
_STEP = re.compile(r"\b(?:global[ _])?(?:steps?|iter(?:ation)?|batch)\b\W{1,4}(\d+)", re.I)
_LOSS = re.compile(rf"\b(?:train(?:ing)?[ _])?loss\W{{1,5}}?({_NUMBER})", re.I)
_RATE = re.compile(rf"\b(?:lr|learning[ _]rate)\W{{1,5}}?({_NUMBER})", re.I)
_SCORE = re.compile(rf"\b([A-Za-z][\w@.]*)['\"]?\s*[:=]\s*({_NUMBER})(?=$|[\s,}}%])")
_IS_SCORE = re.compile(
    r"(?:^|[\W_])(?:acc|accuracy|auc|auroc|bleu|em|f1|map|match|mcc|meteor|mrr|ndcg|pearson|"
    r"perplexity|ppl|precision|recall|rouge|spearman|top)(?:$|[\W_\d])|[\W_]loss$",
    re.IGNORECASE,
)
"""The name of a score: eval_f1, exact_match, dev_acc, recall@1, eval_loss."""


@attrs.frozen
class Bar:
    """A progress bar: its position, its length, the seconds since its begin and steps per second.

    `seconds` and `pace` are None where the line does not say them.
    """

    step: int
    steps: int
    seconds: float | None = None
    pace: float | None = None


@attrs.frozen
class LogLine:
    """What is read of a line; `step` is what it calls its step, where it has no bar."""

    bar: Bar | None
    step: int | None
    loss: float | None
    rate: float | None
    scores: tuple[tuple[str, float], ...]


def read_line(line: str) -> LogLine | None:
    """The figures of a line; None where it has none."""
    bar = _bar(line)
    loss, rate = _last_number(_LOSS, line), _last_number(_RATE, line)
    step = _last_number(_STEP, line)
    if bar is None and loss is None and step is None:
        rate = None  # the arguments of a script, say, which name a learning rate too
    # Behind a bar that is still being drawn on one stream, a line of the other one may follow.
    scores = tuple(_scores(line.rpartition("]")[2] if bar else line))
    if bar is None and loss is None and rate is None and not scores:
        return None
    return LogLine(bar, None if step is None else int(step), loss, rate, scores)


def _bar(line: str) -> Bar | None:
    has_bar = "%|" in line and not LIBRARY_BAR.search(line)
    if has_bar and (found := _BAR.search(line)):
        hours, minutes, seconds = (
            int(found[name] or 0) for name in ("hours", "minutes", "seconds")
        )
        return Bar(
            int(found["step"]),
            int(found["steps"]),
            float(3600 * hours + 60 * minutes + seconds),
            _pace(found["pace"], found["unit"]),
        )
    if "[" in line and (found := _POSITION.search(line)) and _LOSS.search(line):
        return Bar(int(found[1]), int(found[2]))
    return None


def _pace(text: str | None, unit: str | None) -> float | None:
    """Steps per second, from "21.7it/s" or "1.31s/it"."""
    try:
        value = float(text or 0)
    except ValueError:
        return None
    if not value or not unit:
        return None
    return value if unit.endswith("/s") else 1 / value


def _last_number(pattern: re.Pattern[str], line: str) -> float | None:
    found = pattern.findall(line)
    return float(found[-1]) if found else None


def _scores(line: str) -> Iterator[tuple[str, float]]:
    for name, value in _SCORE.findall(line):
        if _IS_SCORE.search(name):
            yield name, float(value)
