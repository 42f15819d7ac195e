"""``ddpfix plan``."""

from __future__ import annotations

import json
from functools import partial

import click

from ..planning.options import PlanOptions
from ..planning.planner import make_plan
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
    click.echo(devices.summary, err=True)
    if asked.probe:
        from ..running.launch import plan_after_probe  # it runs the script

        asked.refuse_simulated()
        found = plan_after_probe(asked, request, devices, say=partial(click.echo, err=True))
    else:
        found = make_plan(request, devices)
    if as_json:
        click.echo(json.dumps(asked.facts(devices, found), indent=2))
        return
    for sentence in (*found.summary, *found.alternatives):
        click.echo(sentence)
