"""Run ``ddpfix check``: findings on stdout, everything else on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from ...errors import InputError
from .cache import Cache, open_cache
from .checker import ScriptResult, check_files, check_script, with_user_paths
from .diagnostics import Diagnostic, printable
from .output import FORMATS, statistics
from .progress import shown_progress
from .request import Request

MAX_NAMES = 3  # of what is skipped or not read


def check(
    request: Request,
    *,
    notes: bool | None = None,
    output_format: str | None = None,
    counted: bool = False,
    exit_zero: bool = False,
    jobs: int | str | None = None,
    cached: bool = True,
    edits: bool = False,
) -> int:
    """Check and print findings; returns the exit status. None means the project's setting.

    Raises InputError for paths and settings that cannot be used.
    """
    config = request.config
    name = output_format or config.output_format
    if edits and (name not in ("json", "sarif") or counted):
        raise InputError("--edits: add --output-format json or sarif, and no --statistics")
    data = sys.stdin.buffer.read() if request.from_stdin else None
    if request.from_stdin:
        files = [request.name]
        entry = check_script(request.name, request.codes, Cache(None, ""), data)
        results = [with_user_paths(request.name, entry)]
    else:
        files = request.files()
        store = open_cache(request.root, request.codes) if cached else Cache(None, "")
        workers = config.jobs if jobs is None else None if jobs == "auto" else int(jobs)
        with shown_progress() as progress:
            results = list(check_files(files, request.codes, store, workers, progress))
        store.save()
    errors = [result.error for result in results if result.error]
    items = distinct(item for result in results for item in result.diagnostics)
    if not (config.notes if notes is None else notes):
        items = [item for item in items if not item.is_note]
    if edits:
        from .check_edits import find_fixes  # libcst is slow to import
        from .edits_format import WITH_EDITS

        edited = [
            path
            for path, result in zip(files, results, strict=True)
            if any(item.is_fixable for item in result.diagnostics)
        ]
        text = WITH_EDITS[name](items, errors, find_fixes(request, edited, data))
    else:
        text = statistics(items, name) if counted else FORMATS[name](items, errors)
    if text:
        print(text)
    for message in errors:
        print(f"ddpfix: {message}", file=sys.stderr)
    for line in unread_imports(files, results):
        print(line, file=sys.stderr)
    if len(errors) < len(results):
        print(counts(items, len(results), len(errors), request.skipped), file=sys.stderr)
    fails = any(not item.is_note for item in items) and not exit_zero
    return 2 if errors else 1 if fails else 0


def unread_imports(files: Sequence[str], results: Sequence[ScriptResult]) -> Iterator[str]:
    """A line on each script in which nothing is found, and not all was read; on the first few."""
    found = [(file, each.unread) for file, each in zip(files, results, strict=True) if each.unread]
    for file, names in found[:MAX_NAMES]:
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        listed = ", ".join(map(printable, names[:MAX_NAMES]))
        yield f"{printable(file)}: nothing found in what could be read; not read: {listed}{more}"
    if len(found) > MAX_NAMES:
        yield f"nor was all read of {number(len(found) - MAX_NAMES, 'other file')}"


def counts(items: Sequence[Diagnostic], files: int, unread: int, skipped: Sequence[str]) -> str:
    """``3 findings in 2 files, 1 of them an error; …``, also where there are none."""
    text = f"{number(len(items), 'finding')} in {number(files, 'file')}"
    if items:
        serious = sum(item.severity == "E" for item in items)
        fixable = sum(item.is_repaired for item in items)
        text += f", {serious} of them errors; `ddpfix patch` has edits for {fixable}"
    if unread:
        text += f"; {number(unread, 'file')} not checked"
    if skipped:
        more = f" and {len(skipped) - MAX_NAMES} more" if len(skipped) > MAX_NAMES else ""
        text += f"; skipped: {', '.join(map(printable, skipped[:MAX_NAMES]))}{more}"
    return text


def number(count: int, noun: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def distinct(items: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Drop duplicates: a module is checked with every script that imports it."""
    real_path = cache(os.path.realpath)
    unique: dict[tuple[str, int, int, str], Diagnostic] = {}
    for item in items:
        unique.setdefault((real_path(item.path), item.line, item.column, item.code), item)
    return list(unique.values())
