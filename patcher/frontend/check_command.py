"""Check what is asked for, say it on stdout and talk on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from .cache import Cache, open_cache
from .checker import check_files, examine, named
from .diagnostics import Diagnostic
from .output import FORMATS, statistics
from .request import Request


def check(
    request: Request,
    *,
    notes: bool | None = None,
    output_format: str | None = None,
    counted: bool = False,
    exit_zero: bool = False,
    jobs: int | str | None = None,
    cached: bool = True,
) -> int:
    """Print findings; the exit status. What is None is as the project's settings say.

    Raises InputError for paths and settings that cannot be used.
    """
    config = request.config
    if request.from_stdin:
        record = examine(request.name, request.codes, Cache(None, ""), sys.stdin.buffer.read())
        outcomes = [named(request.name, record)]
    else:
        files = request.files()
        known = open_cache(request.root, request.codes) if cached else Cache(None, "")
        workers = config.jobs if jobs is None else None if jobs == "auto" else int(jobs)
        outcomes = list(check_files(files, request.codes, known, workers))
        known.save()
    errors = [outcome.error for outcome in outcomes if outcome.error]
    items = distinct(item for outcome in outcomes for item in outcome.found)
    if not (config.notes if notes is None else notes):
        items = [item for item in items if not item.is_note]
    name = output_format or config.output_format
    if said := statistics(items, name) if counted else FORMATS[name](items, errors):
        print(said)
    for message in errors:
        print(f"ddpfix: {message}", file=sys.stderr)
    if items:
        serious = sum(item.severity == "E" for item in items)
        fixable = sum(item.is_fixable for item in items)
        print(
            f"{len(items)} findings, {serious} of them errors; `ddpfix patch` edits {fixable}",
            file=sys.stderr,
        )
    found = any(not item.is_note for item in items) and not exit_zero
    return 2 if errors else 1 if found else 0


def distinct(items: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Each once: a module is reached from every script that imports it."""
    places: dict[str, str] = {}
    found: dict[tuple[str, int, int, str], Diagnostic] = {}
    for item in items:
        place = places.get(item.path)
        if place is None:
            place = places[item.path] = os.path.realpath(item.path)
        found.setdefault((place, item.line, item.column, item.code), item)
    return list(found.values())
