"""``ddpfix plan``."""

from __future__ import annotations

import json
from functools import partial

import click

from ...command_help import HelpfulCommand
from ..planning.options import PlanOptions
from ..planning.planner import make_plan
from ..script.source import shares_batches
from .plan_options import with_plan_options
from .python_option import with_python


@click.command(cls=HelpfulCommand)
@with_plan_options
@with_python
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(plan_options: PlanOptions, python: str | None, as_json: bool) -> None:
    """Plan batch, precision, memory, time and optimizer steps of a training.

    EXTRA is a script with its arguments or a command, as in `ddpfix launch`.
    """
    devices = plan_options.devices()
    request = plan_options.request(shared=plan_options.exact or shares_batches(plan_options.script))
    click.echo(devices.summary, err=True)
    if plan_options.probe:
        from ..backends.interpreter import choose_interpreter
        from ..running.launch import plan_after_probe  # it runs the script

        plan_options.refuse_simulated()
        other = choose_interpreter(python or plan_options.command_python)
        if other is not None:
            click.echo(other.summary, err=True)
        found = plan_after_probe(
            plan_options,
            request,
            devices,
            say=partial(click.echo, err=True),
            python=other,
        )
    else:
        found = make_plan(request, devices)
    if as_json:
        click.echo(json.dumps(plan_options.facts(devices, found), indent=2))
        return
    for sentence in (*found.summary, *found.alternatives):
        click.echo(sentence)
