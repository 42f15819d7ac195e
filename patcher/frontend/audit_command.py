"""The command audit: hold scripts to the twelve obligations, also those never patched.

It reads the scripts and runs nothing. The exit status is that of ``check``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import click

from ...command_help import HelpfulCommand
from ...completion import files
from ...errors import InputError
from ...record import record
from ..analysis.training.load import read_program
from ..audit import all_obligations
from ..audit import audit as judge
from ..audit.verdict import AuditVerdict
from .config import read_config
from .discover import find_scripts
from .output import dumps
from .relative_paths import as_named
from .request import common_folder


@record
class AuditLine:
    """A verdict as plain data."""

    path: str
    line: int  # 1-based
    obligation: str
    answer: str  # violated or unknown
    because: str
    text: str  # the source line


def plain(verdict: AuditVerdict) -> AuditLine:
    """A verdict without the tree it was found in."""
    module = verdict.module
    text = module.line(verdict.line).strip() if verdict.line <= len(module.lines) else ""
    return AuditLine(
        module.source.name,
        verdict.line,
        verdict.code,
        verdict.answer.value,
        verdict.because,
        text,
    )


def verdict_lines(item: AuditLine) -> str:
    """A verdict for a reader: place, answer, sentence and source line."""
    title = next(each.title for each in all_obligations() if each.code == item.obligation)
    head = f"{item.path}:{item.line}: {item.obligation} {item.answer}: {item.because}"
    return f"{head}\n    | {item.text}\n    = {item.obligation}: {title}\n"


def as_object(item: AuditLine) -> dict[str, Any]:
    """A verdict for JSON."""
    return {
        "path": item.path,
        "line": item.line,
        "obligation": item.obligation,
        "answer": item.answer,
        "because": item.because,
    }


@click.command(cls=HelpfulCommand)
@click.argument("paths", nargs=-1, required=True, shell_complete=files)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def audit(ctx: click.Context, paths: Sequence[str], as_json: bool) -> None:
    """Hold scripts to what a program of several ranks must keep. Runs and changes nothing.

    PATHS are scripts or folders; they need not have been patched. `ddpfix explain O7` prints the
    manual of an obligation.

    Exit status: 0 all obligations hold, 1 one is violated or cannot be told, 2 unusable file.
    """
    items, failures = audit_paths(paths)
    if as_json:
        click.echo(dumps([as_object(item) for item in items]))
    else:
        for item in items:
            click.echo(as_named(verdict_lines(item), paths))
    for message in failures:
        click.echo(as_named(f"ddpfix: {message}", paths), err=True)
    if items:
        violations = sum(item.answer == "violated" for item in items)
        click.echo(f"{violations} violated, {len(items) - violations} unknown", err=True)
    ctx.exit(2 if failures else 1 if items else 0)


def audit_paths(paths: Sequence[str]) -> tuple[list[AuditLine], list[str]]:
    """The verdicts on scripts and folders, and why other files cannot be read.

    Raises InputError for a path that does not exist.
    """
    config = read_config(common_folder(paths))
    root = os.path.dirname(config.file) if config.file else "."
    items: dict[tuple[str, int, str, str], AuditLine] = {}
    failures: list[str] = []
    for path in find_scripts(paths, config.exclude, root):
        try:
            verdicts = judge(read_program(path))
        except InputError as error:
            failures.append(str(error))
            continue
        for item in map(plain, verdicts):  # a module is read with each script that imports it
            key = os.path.realpath(item.path), item.line, item.obligation, item.because
            items.setdefault(key, item)
    return list(items.values()), failures
