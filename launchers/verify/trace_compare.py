"""Compare the traces of two runs: numbers, examples, files. Imports no torch."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import frozen

from ..trace.events import Backward, BatchEvent, Collective, Exit, File, StepEvent
from ..trace.read import LoaderPass, RankTrace

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
class GlobalBatch:
    """The examples of one optimizer step, over all ranks.

    ``indices`` into the dataset are sorted and repeated as often as they were drawn; ``epochs`` are
    the training passes (from 0) that they come from, of which there should be one.
    ``ends_epoch``: the step is the last one of its epoch.
    """

    indices: tuple[int, ...]
    epochs: tuple[int, ...]
    ends_epoch: bool

    def lacks(self, other: GlobalBatch) -> list[int]:
        """Examples of ``other`` that are not in this batch, with repetitions."""
        return sorted((Counter(other.indices) - Counter(self.indices)).elements())


@frozen
class Coverage:
    """The examples of one evaluation: the dataset's size, and those that the ranks drew."""

    dataset: str
    length: int
    indices: tuple[int, ...]  # in rank order
    by_each: tuple[int, ...] = ()  # where each of several ranks scored the same examples

    @property
    def missing(self) -> int:
        """Number of examples that no rank scored."""
        return self.length - len(set(self.indices) & set(range(self.length)))

    @property
    def repeated(self) -> int:
        """Number of scores beyond the first of each example."""
        return sum(count - 1 for count in Counter(self.indices).values())

    @property
    def in_order(self) -> bool:
        """Whether each example was scored once, in the dataset's order."""
        return self.indices == tuple(range(self.length))


def steps(run: Run) -> list[StepNumbers]:
    """Numbers of every optimizer step that all ranks took."""
    return [
        StepNumbers(
            math.fsum(step.loss or 0.0 for step in ranks) / len(ranks),
            ranks[0].norm_before_clipping,
            ranks[0].lrs[0] if ranks[0].lrs else 0.0,
        )
        for ranks in zip(*(trace.steps for trace in run), strict=False)
    ]


def deviation(
    first: Sequence[StepNumbers], second: Sequence[StepNumbers], quantity: str
) -> Deviation:
    """The largest relative difference of two runs in ``loss``, ``norm`` or ``lr``.

    A run with fewer steps deviates infinitely at the first step it lacks. NaN in both is the same.
    """
    worst = Deviation(0.0, 0)
    for number, (one, other) in enumerate(zip(first, second, strict=False), 1):
        a, b = getattr(one, quantity), getattr(other, quantity)
        off = 0.0 if is_same(a, b) else abs(a - b) / max(abs(a), abs(b))
        if off > worst.largest or math.isnan(off):
            worst = Deviation(off, number)
    if len(first) != len(second):
        return Deviation(math.inf, min(len(first), len(second)) + 1)
    return worst


def is_same(one: object, other: object) -> bool:
    """Equality in which NaN equals NaN, also within lists and tuples."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(is_same, one, other))
    return one == other


def global_batches(run: Run) -> list[GlobalBatch]:
    """The examples of every optimizer step of a run, all ranks together."""
    per_rank = [_batches_of_rank(trace) for trace in run]
    joined = [
        (
            tuple(sorted(index for indices, _ in ranks for index in indices)),
            tuple(sorted({epoch for _, epochs in ranks for epoch in epochs})),
        )
        for ranks in zip(*per_rank, strict=False)
    ]
    next_epochs = [*(epochs for _, epochs in joined), ()][1:]
    return [
        GlobalBatch(indices, epochs, ends_epoch=not set(epochs[-1:]) & set(following))
        for (indices, epochs), following in zip(joined, next_epochs, strict=True)
    ]


def _batches_of_rank(trace: RankTrace) -> list[tuple[list[int], set[int]]]:
    """Indices and epochs of the examples of each optimizer step of one rank.

    Steps may take batches of other data beside, by a pass that begins in the middle of an epoch.
    """
    epoch_numbers: dict[int, int] = {}
    beside: set[int] = set()
    epoch: LoaderPass | None = None
    for one in trace.passes:
        is_unfinished = one.end is None and one.begin.pass_id in _passes_with_backward(trace)
        if one.kind == "train" or is_unfinished:
            epoch_numbers[one.begin.pass_id] = len(epoch_numbers)
            if epoch is not None and is_beside(epoch, one):
                beside.add(one.begin.pass_id)
            else:
                epoch = one
    batches: list[tuple[list[int], set[int]]] = []
    indices: list[int] = []
    epochs: set[int] = set()
    for event in trace.events:
        if isinstance(event, BatchEvent) and event.pass_id in epoch_numbers:
            indices += [index for index in event.indices if index is not None]
            if event.pass_id not in beside:
                epochs.add(epoch_numbers[event.pass_id])
        elif isinstance(event, StepEvent):
            batches.append((indices, epochs))
            indices, epochs = [], set()
    return batches


def is_beside(epoch: LoaderPass, one: LoaderPass) -> bool:
    """Whether a pass begins before another one over other data is over."""
    first, second = epoch.begin, one.begin
    is_open = epoch.end is None or second.t < epoch.end.t
    return is_open and (first.dataset, first.length) != (second.dataset, second.length)


def _passes_with_backward(trace: RankTrace) -> set[int | None]:
    return {event.pass_id for event in trace.events_of(Backward)}


def first_divergent_step(run: Run) -> int:
    """The first step (from 1) after which the ranks' parameters differ; 0 where they never do."""
    for number, ranks in enumerate(zip(*(trace.steps for trace in run), strict=False), 1):
        sums = {step.checksum.sha256 for step in ranks if step.checksum is not None}
        if len(sums) > 1:
            return number
    return 0


def first_step_beyond(
    first: Sequence[StepNumbers], second: Sequence[StepNumbers], quantity: str, tolerance: float
) -> int:
    """The first step (from 1) where two runs are further apart than ``tolerance``; 0 for none."""
    for number, (one, other) in enumerate(zip(first, second, strict=False), 1):
        if not deviation([one], [other], quantity).largest <= tolerance:
            return number
    return 0


def evaluations(run: Run) -> list[Coverage]:
    """The examples of every evaluation of a run, the ranks' shares joined in rank order.

    Passes at the same position belong together; where a rank made fewer, as it goes past a loader
    of which it has no share, those over the same data in the same line. Where every rank scores
    the whole set, in whichever order, the set counts once.
    """
    shares = [[one for one in trace.passes if is_evaluation(one)] for trace in run]
    coverages = []
    for ranks in _aligned(shares):
        present = [share for share in ranks if share is not None]
        indices = [tuple(i for i in share.indices if i is not None) for share in present]
        length = present[0].begin.length or 0
        alike = len(present) > 1 and all(sorted(each) == sorted(indices[0]) for each in indices)
        whole = alike and sorted(indices[0]) == [*range(length)]
        joined = indices[0] if whole else tuple(itertools.chain.from_iterable(indices))
        by_each = indices[0] if alike else ()
        coverages.append(Coverage(present[0].begin.dataset, length, joined, by_each))
    return coverages


def is_evaluation(one: LoaderPass) -> bool:
    """Whether a pass evaluates. An empty share has no batch by which to tell: it may."""
    return one.kind == "eval" or (one.kind == "other" and not one.batches)


def _aligned(shares: Sequence[list[LoaderPass]]) -> Iterator[tuple[LoaderPass | None, ...]]:
    """The ranks' passes that make up one evaluation, for each one; None where a rank has none."""
    if len({len(passes) for passes in shares}) < 2:
        yield from zip(*shares, strict=True)
        return
    tables: list[dict[tuple[object, ...], LoaderPass]] = []
    for passes in shares:
        counts: Counter[tuple[object, ...]] = Counter()
        table: dict[tuple[object, ...], LoaderPass] = {}
        for one in passes:
            place = (one.begin.site, one.begin.dataset, one.begin.length)
            table[*place, counts[place]] = one
            counts[place] += 1
        tables.append(table)
    longest = max(tables, key=len)
    if not all(table.keys() <= longest.keys() for table in tables):
        yield from itertools.zip_longest(*shares)
        return
    for key in longest:
        yield tuple(table.get(key) for table in tables)


def writers(run: Run, folder: Path) -> dict[str, set[int]]:
    """The ranks that wrote each file below ``folder``; a rename counts for its target."""
    ranks: dict[str, set[int]] = {}
    for trace in run:
        for event in trace.files:
            name = _relative_to(Path(path), folder) if (path := _written(event)) else ""
            if name:
                ranks.setdefault(name, set()).add(trace.rank)
    temporary = (".partial/", ".partial ")
    return {n: ranks[n] for n in sorted(ranks) if not any(p in f"{n} " for p in temporary)}


def writers_outside(run: Run, folder: Path) -> dict[str, set[int]]:
    """The ranks that wrote each file that the script's own code writes outside ``folder``."""
    ranks: dict[str, set[int]] = {}
    for trace in run:
        for event in trace.files:
            path = _written(event) if event.site is not None else None
            if path and "/.cache/" not in path and not _relative_to(Path(path), folder):
                ranks.setdefault(path, set()).add(trace.rank)
    return ranks


def _written(event: File) -> str | None:
    """The path of a file that an event writes, or puts there by renaming another."""
    if event.op == "rename":
        return event.to
    return event.path if event.op in WRITES else None


SAVERS = {"torch.save", "safetensors"}


def checkpoints_written_in_place(run: Run) -> list[str]:
    """Checkpoints written under their final name, so that a reader may find half a file."""
    problems = []
    for trace in run:
        renamed = {event.path for event in trace.files if event.op == "rename"}
        for event in trace.files:
            if event.via in SAVERS and event.op == "write" and event.path not in renamed:
                problems.append(f"{Path(event.path).name} is written in place ({event.site})")
    return list(dict.fromkeys(problems))


def _relative_to(path: Path, folder: Path) -> str:
    """The path from ``folder`` on; "" where it is not below it."""
    try:
        return path.resolve().relative_to(folder.resolve()).as_posix()
    except ValueError:
        return ""


def metric_values(run: Run, key: str) -> list[float]:
    """Values that rank 0 logged under ``key``, in order."""
    return [event.value for event in run[0].metrics if event.key == key]


def exit_statuses(run: Run) -> list[int | None]:
    """Exit status of each rank; None where a process was killed."""
    return [trace.status for trace in run]


def uncaught_exception(run: Run) -> str:
    """The first uncaught exception of a run, on one line; "" where there is none."""
    for trace in run:
        end = trace.last(Exit)
        if end is not None and end.failure is not None:
            return f"{end.failure.type}: {end.failure.message}".splitlines()[0]
    return ""


def all_reduces_per_step(trace: RankTrace) -> list[int]:
    """Gradient all-reduces that a rank took part in before each of its optimizer steps."""
    counts: list[int] = []
    count = 0
    for event in trace.events:
        if isinstance(event, Collective) and event.op == "ddp_all_reduce":
            count += 1
        elif isinstance(event, StepEvent):
            counts.append(count)
            count = 0
    return counts
