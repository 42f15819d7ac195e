"""What the traces of two runs say about each other: numbers, examples, files. Imports no torch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

from .trace.events import Collective, Exit, Step
from .trace.read import RankTrace

WRITES = {"write", "append", "update", "create", "truncate"}
Run = Sequence[RankTrace]


@frozen
class StepNumbers:
    """One optimizer step of a whole run.

    ``loss`` is the mean over ranks of what each back-propagated, as DistributedDataParallel
    averages gradients; ``norm`` the gradient norm before clipping, ``lr`` the first group's rate.
    """

    loss: float
    norm: float
    lr: float


@frozen
class Deviation:
    """The largest relative difference of a quantity, and the step (from 1) where it appears."""

    largest: float
    step: int


@frozen
class Coverage:
    """The examples of one evaluation: how many there are, and what the ranks drew together."""

    dataset: str
    length: int
    drawn: tuple[int, ...]  # in rank order

    @property
    def missing(self) -> int:
        """Examples that no rank scored."""
        return self.length - len(set(self.drawn) & set(range(self.length)))

    @property
    def repeated(self) -> int:
        """Examples scored more than once, counted as often as too much."""
        return sum(count - 1 for count in Counter(self.drawn).values())

    @property
    def in_order(self) -> bool:
        """Each example exactly once, in the dataset's own order."""
        return self.drawn == tuple(range(self.length))


def steps(run: Run) -> list[StepNumbers]:
    """Numbers of every optimizer step that all ranks took."""
    return [
        StepNumbers(
            math.fsum(step.loss or 0.0 for step in ranks) / len(ranks),
            ranks[0].norm_before,
            ranks[0].lrs[0] if ranks[0].lrs else 0.0,
        )
        for ranks in zip(*(trace.steps for trace in run), strict=False)
    ]


def deviation(
    first: Sequence[StepNumbers], second: Sequence[StepNumbers], quantity: str
) -> Deviation:
    """Where two runs are furthest apart in ``loss``, ``norm`` or ``lr``, relative to the first.

    A run that has fewer steps is infinitely far off at the first one it lacks.
    """
    worst = Deviation(0.0, 0)
    for number, (one, other) in enumerate(zip(first, second, strict=False), 1):
        a, b = getattr(one, quantity), getattr(other, quantity)
        off = 0.0 if a == b else abs(a - b) / max(abs(a), abs(b))
        if off > worst.largest or math.isnan(off):
            worst = Deviation(off, number)
    if len(first) != len(second):
        return Deviation(math.inf, min(len(first), len(second)) + 1)
    return worst


def evaluations(run: Run) -> list[Coverage]:
    """Every evaluation of a run, the ranks' shares joined in rank order.

    A rank whose share is empty has no batch and so no kind of its own: its pass at the same place
    of the same loader counts as the evaluation's.
    """
    shares = [
        [p for p in trace.passes if p.kind == "eval" or (p.kind == "other" and not p.batches)]
        for trace in run
    ]
    return [
        Coverage(
            ranks[0].begin.dataset,
            ranks[0].begin.length or 0,
            tuple(index for share in ranks for index in share.indices if index is not None),
        )
        for ranks in zip(*shares, strict=False)
    ]


def writers(run: Run, folder: Path) -> dict[str, set[int]]:
    """The ranks that wrote each file below ``folder``; a rename counts for its target."""
    found: dict[str, set[int]] = {}
    for trace in run:
        for event in trace.files:
            path = event.to if event.op == "rename" else event.path
            if path and (event.op in WRITES or event.op == "rename"):
                inside = _below(Path(path), folder)
                if inside:
                    found.setdefault(inside, set()).add(trace.rank)
    return {name: found[name] for name in sorted(found) if ".partial/" not in name}


def _below(path: Path, folder: Path) -> str:
    try:
        return path.resolve().relative_to(folder.resolve()).as_posix()
    except ValueError:
        return ""


def metric(run: Run, key: str) -> list[float]:
    """Values that rank 0 logged under ``key``, in order."""
    return [event.value for event in run[0].metrics if event.key == key]


def statuses(run: Run) -> list[int | None]:
    """Exit status of each rank; None where a process was cut off."""
    return [trace.status for trace in run]


def failure(run: Run) -> str:
    """The first uncaught exception of a run, on one line; the empty string when there is none."""
    for trace in run:
        end = trace.last(Exit)
        if end is not None and end.failure is not None:
            return f"{end.failure.type}: {end.failure.message}".splitlines()[0]
    return ""


def all_reduces_per_step(trace: RankTrace) -> list[int]:
    """Gradient all-reduces that a rank took part in before each of its optimizer steps."""
    counts: list[int] = []
    waiting = 0
    for event in trace.events:
        if isinstance(event, Collective) and event.op == "ddp_all_reduce":
            waiting += 1
        elif isinstance(event, Step):
            counts.append(waiting)
            waiting = 0
    return counts
