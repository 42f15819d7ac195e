"""Check many scripts: what is known is recalled, equal ones are checked once, the rest in parallel.

Results come in the order of the paths, whatever the number of processes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from ...record import changed, record
from ..source.files import folder_of
from .cache import (
    NOTHING,
    Cache,
    CacheEntry,
    is_of_interest,
)
from .diagnostics import Diagnostic, diagnose

if TYPE_CHECKING:
    from ..analysis.program import Program
    from ..rules import Rule
    from ..source.files import Source

FEW = 16  # scripts for which another process pays
PARTS = 8  # that the work of a process is shared out in


@record
class ScriptResult:
    """One script's diagnostics, or why it cannot be checked."""

    found: tuple[Diagnostic, ...]
    error: str


CLEAN = ScriptResult((), "")


def check_files(
    paths: Sequence[str], codes: tuple[str, ...], known: Cache, jobs: int | None
) -> Iterator[ScriptResult]:
    """Outcomes of the rules ``codes`` on every path. ``jobs`` processes, None for one per CPU."""
    records: dict[str, CacheEntry] = {}
    pending = list(dict.fromkeys(paths))
    while pending:
        first: dict[str, str] = {}
        later = []
        for path in pending:
            key = known.key(path)
            record = known.recall(path, key) if key else NOTHING if key == "" else None
            if record is not None:
                records[path] = record
            elif (key or path) in first:
                later.append(path)  # an equal script is being checked
            else:
                first[key or path] = path
        some = list(first.values())
        for path, record in zip(some, examine_all(some, codes, known, jobs), strict=True):
            records[path] = record
            if record.key:
                known.remember(record)
        pending = later
    for path in paths:
        yield named(path, records[path])


def named(path: str, record: CacheEntry) -> ScriptResult:
    """An entry's diagnostics with the paths that the user knows the files by."""
    if not record.found and not record.error:
        return CLEAN
    folder = folder_of(path)
    found = [
        changed(item, path=os.path.join(folder, item.path) if item.path else path)
        for item in record.found
    ]
    return ScriptResult(tuple(found), record.error and f"{path}{record.error}")


def examine_all(
    paths: list[str], codes: tuple[str, ...], known: Cache, jobs: int | None
) -> Iterator[CacheEntry]:
    """Records of scripts, in their order. Raises InputError where a worker process was killed."""
    workers = min(jobs or len(os.sched_getaffinity(0)), len(paths) // FEW)
    if workers < 2:
        yield from (examine(path, codes, known) for path in paths)
        return
    from concurrent.futures import ProcessPoolExecutor  # of no use to one script
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    # Forked, so that each worker has what is known without being sent it. Neighbours in the list
    # import the same modules: they go to one worker.
    pool = ProcessPoolExecutor(
        workers, get_context("fork"), initializer=begin_worker, initargs=(codes, known)
    )
    try:
        some = 1 + len(paths) // (workers * PARTS)
        yield from pool.map(examine_in_worker, paths, chunksize=some)
    except BrokenProcessPool as error:
        raise InputError("a process was killed; --jobs 1 does without others") from error
    finally:
        pool.shutdown(cancel_futures=True)


worker: list[Any] = []  # codes and cache of a worker process


def begin_worker(*shared: object) -> None:
    """Set a worker process up; Ctrl-C is for the process that shares the work out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker[:] = shared


def examine_in_worker(path: str) -> CacheEntry:
    """Check one script in a worker process."""
    return examine(path, *worker)


def diagnostics(program: Program, codes: tuple[str, ...], folder: str) -> tuple[Diagnostic, ...]:
    """What is found in a program; files are named from its folder on, "" is the script."""
    from ..engine.check import check

    script = program.script
    return tuple(
        diagnose(
            finding,
            ""
            if finding.module is script
            else finding.module.source.name.removeprefix(f"{folder}/"),
        )
        for finding in check(program, rules_of(codes))
    )


@cache
def rules_of(codes: tuple[str, ...]) -> list[Rule]:
    """The rules of these codes."""
    from ..rules import all_rules

    return [rule for rule in all_rules() if rule.code in codes]


def examine(
    path: str, codes: tuple[str, ...], known: Cache, data: bytes | None = None
) -> CacheEntry:
    """Check one script; ``data`` stands in for the file's bytes."""
    from ..analysis.load import read_program  # of no use where all is recalled

    folder = os.path.dirname(os.path.realpath(path))
    probes: dict[str, str | None] = {}

    def recorded(module: str) -> Source | None:
        name = module.removeprefix(f"{folder}/")
        probes[name] = known.probe(folder, name)
        return None if probes[name] is None else known.source(module)

    key = ""
    try:
        if data is None:
            data = known.content(path)
            key = known.key(path) or ""
        if not key and not is_of_interest(data):
            return NOTHING
        program = read_program(path, data, recorded)
        found = diagnostics(program, codes, folder)
    except InputError as error:
        return CacheEntry(key, tuple(probes.items()), (), str(error).removeprefix(path))
    except RecursionError:
        return CacheEntry(
            key, tuple(probes.items()), (), ": nested too deeply to be checked; split it"
        )
    return CacheEntry(key, tuple(probes.items()), found, "")
