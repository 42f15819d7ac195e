"""Check many scripts in parallel, equal ones once, and take known results from the cache.

Results come in the order of the paths, whatever the number of processes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from ...record import record, replace
from ..source.files import folder_of
from .cache import NO_FINDINGS, Cache, CacheEntry, is_of_interest, mentions_library
from .diagnostics import Diagnostic, FileError, diagnose, own_mistake
from .lookups import Lookup
from .remedies import remedies

if TYPE_CHECKING:
    from ..analysis.training.program import Program
    from ..rules import Rule
    from ..source.files import Source
    from .progress import CheckProgress

MIN_SCRIPTS_PER_WORKER = 16  # scripts for which another process pays
CHUNKS_PER_WORKER = 8


@record
class ScriptResult:
    """The diagnostics of one script, or why it cannot be checked.

    ``unread`` are imports that could not be read, where nothing was found.
    """

    diagnostics: tuple[Diagnostic, ...]
    error: FileError | None
    unread: tuple[str, ...] = ()


CLEAN = ScriptResult((), None)


def check_files(
    paths: Sequence[str],
    codes: tuple[str, ...],
    store: Cache,
    jobs: int | None,
    progress: CheckProgress | None = None,
) -> Iterator[ScriptResult]:
    """Results of the rules ``codes`` on every path. ``jobs`` processes, None for one per CPU."""
    entries: dict[str, CacheEntry] = {}
    pending = list(dict.fromkeys(paths))
    while pending:
        unchecked: dict[str, str] = {}
        equal = []
        for path in pending:
            key = store.key(path)
            entry = store.recall(path, key) if key else NO_FINDINGS if key == "" else None
            if entry is not None:
                entries[path] = entry
            elif (key or path) in unchecked:
                equal.append(path)  # to a script that is about to be checked
            else:
                unchecked[key or path] = path
        batch = list(unchecked.values())
        for path, entry in zip(batch, check_in_parallel(batch, codes, store, jobs), strict=True):
            entries[path] = entry
            if progress is not None:
                progress.checked(len(entries), len(paths))
            if entry.key:
                store.remember(entry)
        pending = equal
    for path in paths:
        yield with_user_paths(path, entries[path])


def with_user_paths(path: str, entry: CacheEntry) -> ScriptResult:
    """An entry's diagnostics, with the paths by which the user named the files."""
    if not entry.diagnostics and not entry.error:
        return ScriptResult((), None, entry.unread) if entry.unread else CLEAN
    folder = folder_of(path)
    found = [
        replace(item, path=joined(folder, item.path) if item.path else path)
        for item in entry.diagnostics
    ]
    return ScriptResult(tuple(found), FileError(path, entry.error) if entry.error else None)


def joined(folder: str, relative: str) -> str:
    """The path of a module, without the ``..`` of one above the script's folder."""
    path = os.path.join(folder, relative)
    return os.path.normpath(path) if relative.startswith("..") else path


def check_in_parallel(
    paths: list[str], codes: tuple[str, ...], store: Cache, jobs: int | None
) -> Iterator[CacheEntry]:
    """Check scripts, results in their order. Raises InputError where a worker was killed."""
    workers = min(jobs or len(os.sched_getaffinity(0)), len(paths) // MIN_SCRIPTS_PER_WORKER)
    if workers < 2:
        yield from (check_script(path, codes, store) for path in paths)
        return
    from concurrent.futures import ProcessPoolExecutor  # not needed for one script
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    # Forked workers inherit the cache. Neighbours in the list import the same modules, so that
    # chunks of them go to one worker.
    pool = ProcessPoolExecutor(
        workers, get_context("fork"), initializer=begin_worker, initargs=(codes, store)
    )
    try:
        chunk = 1 + len(paths) // (workers * CHUNKS_PER_WORKER)
        yield from pool.map(examine_in_worker, paths, chunksize=chunk)
    except BrokenProcessPool as error:
        raise InputError("a process was killed; --jobs 1 does without others") from error
    finally:
        pool.shutdown(cancel_futures=True)


worker: list[Any] = []  # codes and cache of a worker process


def begin_worker(*shared: object) -> None:
    """Set a worker process up; the parent handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker[:] = shared


def examine_in_worker(path: str) -> CacheEntry:
    """Check one script in a worker process."""
    return check_script(path, *worker)


def diagnostics(program: Program, codes: tuple[str, ...], folder: str) -> tuple[Diagnostic, ...]:
    """Findings in a program as data; paths are relative to ``folder``, "" is the script."""
    from ..engine.check import check

    script = program.script
    findings = check(program, rules_with_codes(codes))
    what_to_do = remedies(program, findings)
    return tuple(
        diagnose(
            finding,
            "" if finding.module is script else os.path.relpath(finding.module.source.name, folder),
            what_to_do,
        )
        for finding in findings
    )


@cache
def rules_with_codes(codes: tuple[str, ...]) -> list[Rule]:
    """The rules with these codes."""
    from ..rules import all_rules

    return [rule for rule in all_rules() if rule.code in codes]


def check_script(
    path: str, codes: tuple[str, ...], store: Cache, data: bytes | None = None
) -> CacheEntry:
    """Check one script; ``data`` replaces the file's bytes."""
    from ..analysis.training.load import read_program  # not needed where every result is cached

    folder = store.folders.home(path)
    probes: dict[str, str | None] = {}

    def look_up(module: str) -> Source | None:
        name = os.path.relpath(module, folder)
        probes[name] = store.folders.probe(folder, name)
        return None if probes[name] is None else store.source(module)

    def lookups() -> tuple[Lookup, ...]:
        return store.folders.lookups(folder, probes)

    key = ""
    try:
        if data is None:
            data = store.content(path)
            key = store.key(path) or ""
        if not key and not is_of_interest(data):
            return NO_FINDINGS
        program = read_program(path, data, look_up)
        if not mentions_library(data) and not any(
            mentions_library(module.source.text.encode()) for module in program.modules
        ):
            return CacheEntry(key, lookups(), (), "")
        found = diagnostics(program, codes, folder)
    except InputError as error:
        return CacheEntry(key, lookups(), (), str(error).removeprefix(path))
    except RecursionError:
        return CacheEntry(key, lookups(), (), ": nested too deeply to be checked; split it")
    except Exception as error:  # a mistake of ours costs this file, and is not remembered
        return CacheEntry("", (), (), own_mistake(error))
    return CacheEntry(key, lookups(), found, "", () if found else unread_by(program))


def unread_by(program: Program) -> tuple[str, ...]:
    """What a script imports that could not be read, where nothing that was read trains."""
    script = program.script
    if not script.is_program or program.train_loops:
        return ()
    names = [
        " ".join(name.split()) for file, _, name in program.unread if file == script.source.name
    ]
    return tuple(dict.fromkeys([*names, *named_at_run_time(program)]))


def named_at_run_time(program: Program) -> list[str]:
    """The imports of a program of which the run alone shows what they import, an option's say."""
    from ..analysis.language.imports import imports_named_at_run_time

    return [
        " ".join(module.text(call).split())
        for module in program.modules  # as of models/__init__.py, which finds one by its option
        for call in imports_named_at_run_time(module)
        if module is program.script or program.is_live(module, call)
    ]
