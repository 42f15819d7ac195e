"""Check many scripts: what is known is recalled, equal ones are checked once, the rest in parallel.

Results come in the order of the paths, whatever the number of processes.
"""

from __future__ import annotations

import os

from ..errors import InputError
from ..record import record, values
from .cache import (
    NOTHING,
    Cache,
    Record,
    is_of_interest,
)
from .collector import keep_freed_memory, patient_collector
from .diagnostics import Diagnostic
from .light import Iterator, Sequence, cache
from .places import folder_of, real

TYPE_CHECKING = False  # typing takes long to import
if TYPE_CHECKING:
    from typing import Any

    from .facts import Unit
    from .rules import Rule
    from .sources import Source

FEW = 4  # scripts for which another process pays


@record
class Outcome:
    """One script's diagnostics, or why it cannot be checked."""

    found: tuple[Diagnostic, ...]
    error: str


CLEAN = Outcome((), "")


def check_files(
    paths: Sequence[str], codes: tuple[str, ...], known: Cache, jobs: int | None
) -> Iterator[Outcome]:
    """Outcomes of the rules ``codes`` on every path. ``jobs`` processes, None for one per CPU."""
    keep_freed_memory()
    records: dict[str, Record] = {}
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
        yield shown(path, records[path])


def shown(path: str, record: Record) -> Outcome:
    """A record as the user named the script."""
    if not record.found and not record.error:
        return CLEAN
    paths = {"": path}
    for name in {item[0] for item in record.found} - {""}:
        paths[name] = os.path.join(folder_of(path), name)
    found = tuple([Diagnostic(paths[item[0]], *item[1:]) for item in record.found])
    return Outcome(found, record.error and f"{path}{record.error}")


def examine_all(
    paths: list[str], codes: tuple[str, ...], known: Cache, jobs: int | None
) -> Iterator[Record]:
    """Records of scripts, in their order."""
    with patient_collector():
        yield from _examine_all(paths, codes, known, jobs)


def _examine_all(
    paths: list[str], codes: tuple[str, ...], known: Cache, jobs: int | None
) -> Iterator[Record]:
    workers = min(jobs or len(os.sched_getaffinity(0)), len(paths) // FEW)
    if workers < 2:
        yield from (examine(path, codes, known) for path in paths)
        return
    from .processes import MOST, shared_out

    some = 1 + len(paths) // MOST
    parts = [paths[start : start + some] for start in range(0, len(paths), some)]

    def work(number: int) -> list[Any]:
        return [values(examine(path, codes, known)) for path in parts[number]]

    done = shared_out(work, shares(parts, workers))
    for number in range(len(parts)):
        yield from (Record(*each) for each in done[number])


def shares(parts: list[list[str]], workers: int) -> list[list[int]]:
    """Numbers of the parts in runs of about as many bytes: neighbours import the same modules.

    Large folders first, so that what is left to help with at the end is little.
    """
    found: list[list[int]] = [[] for _ in range(workers)]
    sizes = [sum(map(size, part)) for part in parts]
    folders = [os.path.dirname(part[0]) for part in parts]
    whole, before = sum(sizes), 0
    in_folder = dict.fromkeys(folders, 0)
    for number, own in enumerate(sizes):
        found[before * workers // whole].append(number)
        before += own
        in_folder[folders[number]] += own
    for share in found:
        share.sort(key=lambda number: in_folder[folders[number]], reverse=True)
    return found


def size(path: str) -> int:
    """Bytes of a file; 1 for what cannot be told, which its check will say."""
    try:
        return os.path.getsize(path) or 1
    except OSError:
        return 1


def rows(unit: Unit, codes: tuple[str, ...], folder: str) -> list[tuple[object, ...]]:
    """What is found in a unit; files are named from its folder on, "" is the script."""
    from .diagnostics import row
    from .engine import check

    found = []
    for finding in check(unit, rules_of(codes)):
        own = finding.module is unit.script
        name = "" if own else finding.module.source.name.removeprefix(f"{folder}/")
        found.append(row(finding, name))
    return found


@cache
def rules_of(codes: tuple[str, ...]) -> list[Rule]:
    """The rules of these codes."""
    from .rules import all_rules

    return [rule for rule in all_rules() if rule.code in codes]


def examine(path: str, codes: tuple[str, ...], known: Cache, data: bytes | None = None) -> Record:
    """Check one script; ``data`` stands in for the file's bytes."""
    from .project import read_unit, release

    folder = os.path.dirname(real(path))
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
        unit = read_unit(path, data, recorded)
        found = rows(unit, codes, folder)
        release(unit)
    except InputError as error:
        return Record(key, tuple(probes.items()), (), str(error).removeprefix(path))
    except RecursionError:
        return Record(key, tuple(probes.items()), (), ": nested too deeply to be checked; split it")
    return Record(key, tuple(probes.items()), tuple(found), "")
