"""``ddpfix gpus``."""

from __future__ import annotations

import json

import click

from ...command_help import HelpfulCommand
from ...record import as_dict
from ..gpus.select import GpuRequest
from .gpu_options import with_gpu_options


@click.command(cls=HelpfulCommand)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; one line each with --watch.")
@click.option("--watch", is_flag=True, help="Refresh until Ctrl-C.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    help="Seconds between refreshes with --watch.",
)
@with_gpu_options
def gpus(as_json: bool, watch: bool, every: float, gpu_request: GpuRequest) -> None:
    """Show the GPUs of this machine and which of them a training may use."""
    if watch:
        from ..gpus.watch import watch as keep_watching

        keep_watching(gpu_request.take_inventory, every, as_json=as_json)
        return
    found = gpu_request.take_inventory()
    if as_json:
        click.echo(json.dumps(as_dict(found), indent=2))
        return
    if found.note:
        click.echo(found.note, err=True)
    from ..gpus.table import print_table

    print_table(found)
