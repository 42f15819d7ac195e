"""Read the traces of a run, and describe where its ranks disagree. Does not import torch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import cattrs
from attrs import define, field

from ...errors import InputError
from .events import (
    KINDS,
    SCHEMA,
    BatchEvent,
    Child,
    Closed,
    Event,
    Exit,
    File,
    Hang,
    ImportEvent,
    Metric,
    Pass,
    PassEnd,
    Start,
    StepEvent,
)

E = TypeVar("E", bound=Event)

_converter = cattrs.Converter(forbid_extra_keys=False)


@define
class LoaderPass:
    """One iteration over a DataLoader.

    ``end`` is None if the rank died in the middle of it.
    """

    begin: Pass
    batches: list[BatchEvent]
    end: PassEnd | None

    @property
    def kind(self) -> str:
        """``train``, ``eval`` or ``other``; ``unfinished`` if the rank died in it."""
        return self.end.kind if self.end is not None else "unfinished"

    @property
    def indices(self) -> list[int | None]:
        """The dataset indices that the script received, in order."""
        return [index for batch in self.batches for index in batch.indices]


@define
class RankTrace:
    """The trace of one rank: its ``events``, and those of its forked ``children`` by process id."""

    start: Start
    events: list[Event]
    children: dict[int, list[Event]] = field(factory=dict)

    @property
    def rank(self) -> int:
        """Global rank, 0 for a single process."""
        return self.start.rank

    @property
    def world_size(self) -> int:
        """Number of ranks of the run."""
        return self.start.world_size

    def events_of(self, kind: type[E]) -> list[E]:
        """Its events of one kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    def last(self, kind: type[E]) -> E | None:
        """The last event of a kind, or None."""
        return next((event for event in reversed(self.events) if isinstance(event, kind)), None)

    @property
    def steps(self) -> list[StepEvent]:
        """The steps of all optimizers, in order."""
        return self.events_of(StepEvent)

    @property
    def passes(self) -> list[LoaderPass]:
        """Iterations over DataLoaders, in the order in which they began."""
        found = {event.pass_id: LoaderPass(event, [], None) for event in self.events_of(Pass)}
        for event in self.events:
            if isinstance(event, BatchEvent):
                found[event.pass_id].batches.append(event)
            elif isinstance(event, PassEnd):
                found[event.pass_id].end = event
        return list(found.values())

    @property
    def files(self) -> list[File]:
        """File events of the rank, then of its children."""
        lists = [self.events, *self.children.values()]
        return [event for events in lists for event in events if isinstance(event, File)]

    @property
    def metrics(self) -> list[Metric]:
        """The logged metrics, in order."""
        return self.events_of(Metric)

    @property
    def status(self) -> int | None:
        """Exit status of the script; None if the process was killed or hung."""
        end = self.last(Exit)
        return end.status if end is not None else None

    @property
    def hang(self) -> Hang | None:
        """The report of a hang, or None."""
        return self.last(Hang)

    @property
    def group_destroyed(self) -> bool | None:
        """Whether no process group was left at the end; None if the process was killed or hung."""
        end = self.last(Closed) or self.last(Exit)
        return not end.group_alive if end is not None else None

    def phases(self) -> dict[str, float]:
        """Wall time in seconds of ``import``, ``set-up``, ``train``, ``eval`` and ``rest``.

        ``import`` is the time for importing large libraries before the first loader pass,
        ``set-up`` all other time before it; ``train`` and ``eval`` are the time in passes of that
        kind, where an evaluation inside training counts as evaluation only; ``rest`` is all else.
        """
        total = self.events[-1].t if self.events else 0.0
        passes = self.passes
        begin = passes[0].begin.t if passes else total
        imports = sum(event.seconds for event in self.events_of(ImportEvent) if event.t <= begin)
        setup = max(0.0, begin - imports)
        spent = {"train": 0.0, "eval": 0.0}
        for kind, seconds in _own_time(passes, total):
            spent[kind] = spent.get(kind, 0.0) + seconds
        train, evaluation = spent["train"], spent["eval"]
        rest = max(0.0, total - imports - setup - train - evaluation)
        return {
            "import": imports,
            "set-up": setup,
            "train": train,
            "eval": evaluation,
            "rest": rest,
        }


def read(folder: str | Path) -> list[RankTrace]:
    """The traces in a folder, by rank.

    An incomplete last line (the process was killed) is dropped. Raises InputError if there is no
    trace, a line cannot be read, or the files are of different runs.
    """
    folder = Path(folder)
    traces = [_read_rank(path) for path in folder.glob("rank*.jsonl") if "pid" not in path.name]
    if not traces:
        raise InputError(
            f"{folder}: no trace here (rank0.jsonl); write one with "
            "python -m ddpfix.launchers.trace --out DIR SCRIPT"
        )
    traces.sort(key=lambda trace: trace.rank)
    worlds = {trace.world_size for trace in traces}
    if len(worlds) > 1 or traces[-1].rank >= traces[0].world_size:
        raise InputError(f"{folder}: holds ranks of several runs; trace into an empty folder")
    return traces


def disagreement(traces: Iterable[RankTrace]) -> str | None:
    """Where each rank was when the run hung, in one sentence; None if no rank reported a hang.

    For instance "rank 0 is in evaluate run.py:214 (all_gather_object), rank 1 in train run.py:180
    (backward)". For a rank that had ended, the sentence has its status or its exception.
    """
    traces = list(traces)
    if not any(trace.hang for trace in traces):
        return None
    places = [_position(trace) for trace in traces]
    if len(places) > 1 and len(set(places)) == 1:
        return f"every rank is {places[0]}: together, so waiting for something outside, or slow"
    # "is" only once: rank 0 is in …, rank 1 in …
    first, *rest = [
        f"rank {trace.rank} {'is ' if index == 0 and trace.hang else ''}{place}"
        for index, (trace, place) in enumerate(zip(traces, places, strict=True))
    ]
    return ", ".join([first, *rest])


def _position(trace: RankTrace) -> str:
    if trace.hang is not None:
        where = str(trace.hang.where) if trace.hang.where else "no code of the script"
        return f"in {where}" + (f" ({trace.hang.operation})" if trace.hang.operation else "")
    end = trace.last(Exit)
    if end is None:
        return "was cut off without a report"
    if end.failure is not None:
        return f"ended with {end.failure.type}: {end.failure.message}".splitlines()[0]
    return f"ended with status {end.status}"


def _own_time(passes: list[LoaderPass], total: float) -> list[tuple[str, float]]:
    """The kind of each pass, and its time less that of the passes inside it."""
    spans = [(p.begin.t, p.end.t if p.end else total, p.kind) for p in passes]
    own = []
    for number, (begin, end, kind) in enumerate(spans):
        inner, reached = 0.0, begin
        for start, stop, _ in spans[number + 1 :]:
            if start < end:
                start, stop = max(start, reached), min(stop, end)
                inner += max(0.0, stop - start)
                reached = max(reached, stop)
        own.append((kind, max(0.0, end - begin - inner)))
    return own


def _read_rank(path: Path) -> RankTrace:
    events = _read_events(path)
    if not events or not isinstance(events[0], Start):
        raise InputError(f"{path}:1: does not begin as a trace; trace the run again")
    children: dict[int, list[Event]] = {}
    for other in sorted(path.parent.glob(f"{path.stem}.pid*.jsonl")):
        written = _read_events(other)
        if written and isinstance(written[0], Child):
            children[written[0].pid] = written[1:]
    return RankTrace(events[0], events[1:], children)


def _read_events(path: Path) -> list[Event]:
    # After the last newline there is nothing, or an incomplete line.
    *lines, _ = path.read_bytes().split(b"\n")
    events: list[Event] = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            events.append(_structure(record))
        except (ValueError, KeyError, TypeError, cattrs.BaseValidationError) as error:
            raise InputError(
                f"{path}:{number}: not a line of a trace of schema {SCHEMA} "
                f"({type(error).__name__}); trace the run again with this version"
            ) from error
    return events


def _structure(record: dict[str, Any]) -> Event:
    kind = KINDS[record.pop("type")]
    if record.get("schema", SCHEMA) != SCHEMA:
        raise ValueError("schema")
    return _converter.structure(record, kind)
