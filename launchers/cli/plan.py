"""``ddpfix plan``."""

from __future__ import annotations

import json
from functools import partial

import click

from ..running.launch import PlanOptions
from ..script.source import shares_batches
from .plan_options import planning


@click.command()
@planning
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(asked: PlanOptions, as_json: bool) -> None:
    """Plan batch, precision, memory, time and optimizer steps for a recipe.

    EXTRA, after --, are arguments for the script, as in `ddpfix launch`.
    """
    devices = asked.devices()
    request = asked.request(shared=asked.exact or shares_batches(asked.script))
    click.echo(devices.found, err=True)
    if asked.probe:
        asked.refuse_simulated()
    found = asked.plan(request, devices, say=partial(click.echo, err=True))
    if as_json:
        click.echo(json.dumps(asked.facts(devices, found), indent=2))
        return
    for sentence in (*found.said, *found.others):
        click.echo(sentence)
