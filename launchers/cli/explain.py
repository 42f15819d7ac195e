"""``ddpfix explain``: the manual of a rule, and what the errors of a log mean."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...command_help import HelpfulCommand
from ...errors import InputError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ..running.known_errors import Sighting


def _names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from ...patcher.api import manual_names  # reads all rules

    return manual_names(ctx, param, incomplete)


@click.command(cls=HelpfulCommand)
@click.argument("code", required=False, shell_complete=_names)
@click.option(
    "--log",
    "log_file",
    type=click.Path(path_type=Path),
    help="Explain the errors of this log; - is standard input.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON (--log).")
@click.pass_context
def explain(ctx: click.Context, code: str | None, log_file: Path | None, as_json: bool) -> None:
    """Print the manual of a rule (DF402), an obligation (O7) or a capability (amp).

    With --log, tell what the errors in the output of a training mean, and what mends them.

    Exit status with --log: 1 if there is an error, 0 if none.
    """
    if (code is None) == (log_file is None):
        raise click.UsageError("pass a code, or --log FILE")
    if log_file is None:
        from ...patcher.api import manual

        click.echo(manual(str(code)))
        return
    from ..running.known_errors import sightings

    found = sightings(_lines(log_file))
    if as_json:
        click.echo(json.dumps([_as_json(one) for one in found], indent=2))
    else:
        _show(str(log_file), found)
    ctx.exit(1 if found else 0)


def _lines(log: Path) -> Iterator[str]:
    if str(log) == "-":
        sys.stdin.reconfigure(errors="replace")  # type: ignore[union-attr]
        yield from sys.stdin
        return
    try:
        with log.open(encoding="utf-8", errors="replace", newline="\n") as file:
            yield from file
    except OSError as error:
        raise InputError(f"{log}: cannot be read: {error.strerror}") from None


def _show(name: str, found: Sequence[Sighting]) -> None:
    if not found:
        click.echo(f"{name}: no error is found", err=True)
    for place, one in enumerate(found):
        if place:
            click.echo()
        times = f" ({one.count} times)" if one.count > 1 else ""
        click.echo(f"{name}:{one.line}: {one.text}{times}")
        lines = one.error.advice if one.error else ["not a message that ddpfix knows"]
        for line in lines:
            click.echo(f"  {line}")


def _as_json(one: Sighting) -> dict[str, Any]:
    error = one.error
    return {
        "line": one.line,
        "text": one.text,
        "count": one.count,
        "name": error.name if error else None,
        "cause": error.cause if error else None,
        "remedy": error.remedy if error else None,
        "codes": error.codes if error else [],
        "source": error.source if error else None,
    }
