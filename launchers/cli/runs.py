"""``ddpfix attach``, ``ddpfix stop`` and ``ddpfix status``."""

from __future__ import annotations

import json

import click

from ...command_help import HelpfulCommand
from ..running import history as runs
from .word_completion import runs as complete_runs

_which = click.argument("run", required=False, metavar="[RUN]", shell_complete=complete_runs)


@click.command(cls=HelpfulCommand)
@_which
@click.pass_context
def attach(ctx: click.Context, run: str | None) -> None:
    """Follow the output of a run until it ends. Ctrl-C leaves the run going.

    RUN is a run folder, or a prefix of its name in .ddpfix/runs of the current project or in
    ~/.local/state/ddpfix/runs (default: the latest run there).

    Exit status: the run's own, 1 if its launcher was killed.
    """
    found = runs.find(run, _warn)
    try:
        ctx.exit(runs.follow(found))
    except KeyboardInterrupt:
        click.echo(f"\nIt runs on: {found.folder}", err=True)


@click.command(cls=HelpfulCommand)
@_which
@click.option("--now", is_flag=True, help="Kill it at once, without --grace.")
def stop(run: str | None, now: bool) -> None:
    """Stop a run and wait until all its processes are gone. RUN as in `ddpfix attach`."""
    found = runs.find(run, _warn)
    click.echo(next(runs.status_lines([runs.stop(found, now)])))


@click.command(cls=HelpfulCommand)
@_which
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(run: str | None, as_json: bool) -> None:
    """Show how a run ended or how far it is. RUN as in `ddpfix attach` (default: all runs)."""
    if run:
        found = [runs.find(run, _warn)]
    else:
        found, errors = runs.read_all(runs.run_folders())
        for error in errors:
            _warn(error)
    if as_json:
        click.echo(json.dumps([one.facts() for one in found], indent=2))
    elif found:
        click.echo("\n".join(runs.status_lines(found)))


def _warn(message: str) -> None:
    click.echo(f"ddpfix: {message}", err=True)
