"""``ddpfix plan``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ...recipes.load import load
from ..gpus.select import GpuRequest
from ..planning.planner import PlanRequest
from ..script.source import shares_batches
from .plan_options import devices_for, facts_of, plan_for, planning, refuse_simulated


@click.command()
@planning
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("extra", nargs=-1, type=click.UNPROCESSED)
def plan(
    recipe_name: str,
    global_batch: int | None,
    per_device: int | None,
    processes: int | None,
    cpu: bool,
    wish: GpuRequest,
    script: Path | None,
    exact: bool,
    precision: str,
    probe: int | None,
    as_json: bool,
    extra: tuple[str, ...],
) -> None:
    """Plan batch, precision, memory, time and optimizer steps for a recipe.

    EXTRA, after --, are arguments for the script, as in `ddpfix launch`.
    """
    recipe = load(recipe_name)
    path = script or Path(recipe.script)
    devices = devices_for(wish, processes, cpu=cpu)
    shared = exact or shares_batches(path)
    asked = PlanRequest(recipe, path, global_batch, per_device, precision, extra, shared)
    click.echo(devices.found, err=True)
    if probe:
        refuse_simulated(wish)
    found = plan_for(asked, devices, probe)
    if as_json:
        click.echo(json.dumps(facts_of(recipe, devices, found), indent=2))
        return
    for sentence in (*found.said, *found.others):
        click.echo(sentence)
