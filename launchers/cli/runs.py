"""``ddpfix attach``, ``ddpfix stop`` and ``ddpfix status``."""

from __future__ import annotations

import json

import click

from ..running import history as runs

_which = click.argument("run", required=False, metavar="[RUN]")


@click.command()
@_which
@click.pass_context
def attach(ctx: click.Context, run: str | None) -> None:
    """Show the output of a run until it ends, and exit as it does; Ctrl-C lets it run on.

    RUN is a run folder, or how the name of one in the state folder begins; without it, the run that
    was launched last.
    """
    found = runs.find(run)
    try:
        ctx.exit(runs.follow(found))
    except KeyboardInterrupt:
        click.echo(f"\nIt runs on: {found.folder}", err=True)


@click.command()
@_which
@click.option("--now", is_flag=True, help="Leave it no time to end by itself.")
def stop(run: str | None, now: bool) -> None:
    """Stop a run and wait until nothing of it is left. RUN as for `ddpfix attach`."""
    found = runs.find(run)
    click.echo(runs.lines([runs.stop(found, now)])[0])


@click.command()
@_which
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def status(run: str | None, as_json: bool) -> None:
    """One run, or all in the state folder: how each ended, or how far it is."""
    found = [runs.find(run)] if run else [runs.read(folder) for folder in runs.kept()]
    if as_json:
        click.echo(json.dumps([one.facts() for one in found], indent=2))
        return
    for line in runs.lines(found):
        click.echo(line)
