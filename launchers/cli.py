"""``ddpfix gpus``, ``ddpfix plan`` and ``ddpfix launch``."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import attrs
import click

from ..errors import InputError
from ..recipes.model import Recipe, load
from . import command as commands
from .gpus import BUSY_ABOVE, GIB, Gpu, Inventory, hides_every_card, inventory
from .plan import Plan, solve
from .run import LOG, check_folder, default_folder, run

CPU_PROCESSES = 2
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def read_size(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """Bytes, from a number with a binary unit: 2GiB, 500M, 1073741824."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", value.strip().lower())
    if not match:
        raise InputError(f"{value!r} is no size: write it as 2GiB or 500MiB")
    return int(float(match[1]) * UNITS[match[2]])


@attrs.frozen
class Devices:
    """Where the processes run: so many cards, or the CPU when there are none, and why."""

    world: int
    cards: tuple[Gpu, ...]
    found: str


busy_option = click.option(
    "--busy-above",
    callback=read_size,
    metavar="SIZE",
    default=str(BUSY_ABOVE),
    help="Leave out cards with more memory than this in use; 1GiB unless given.",
)


def _shared(function: Any) -> Any:
    """The options that `plan` and `launch` have in common."""
    options = [
        click.option("--recipe", "recipe_name", required=True, help="A recipe's name or file."),
        click.option("--global-batch", type=int, help="Examples per optimizer step over all."),
        click.option("--per-device", type=int, help="The most examples a device takes at once."),
        click.option("--processes", type=int, help="How many; else one per usable card."),
        click.option("--cpu", is_flag=True, help="Use the CPU even where there are cards."),
        busy_option,
    ]
    for option in reversed(options):
        function = option(function)
    return function


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@busy_option
def gpus(as_json: bool, busy_above: int) -> None:
    """The cards of this machine, and which of them a training may use."""
    found = inventory(busy_above=busy_above)
    if as_json:
        click.echo(json.dumps(attrs.asdict(found), indent=2))
        return
    if found.note:
        click.echo(found.note, err=True)
    if found.gpus:
        _print_table(["card", "name", "used / GiB", "total / GiB", "cc", "load", "state"], found)


@click.command()
@_shared
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def plan(
    recipe_name: str,
    global_batch: int | None,
    per_device: int | None,
    processes: int | None,
    cpu: bool,
    busy_above: int,
    as_json: bool,
) -> None:
    """The batch plan for a recipe on these cards."""
    recipe = load(recipe_name)
    devices = choose_devices(inventory(busy_above=busy_above), processes, cpu=cpu)
    solved = make_plan(recipe, devices.world, global_batch, per_device)
    click.echo(devices.found, err=True)
    if as_json:
        click.echo(json.dumps(_facts(recipe, devices, solved), indent=2))
    else:
        click.echo(solved.why)


@click.command()
@_shared
@click.option(
    "--script", type=click.Path(path_type=Path), help="Else the recipe's, in this folder."
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="The run folder; else a new one under ~/.local/state/ddpfix/runs.",
)
@click.option("--dry-run", is_flag=True, help="Print the command, run and write nothing.")
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="Seconds to end after Ctrl-C or SIGTERM before everything is killed.",
)
@click.argument("extra", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def launch(
    ctx: click.Context,
    recipe_name: str,
    global_batch: int | None,
    per_device: int | None,
    processes: int | None,
    cpu: bool,
    busy_above: int,
    script: Path | None,
    output: Path | None,
    dry_run: bool,
    grace: float,
    extra: tuple[str, ...],
) -> None:
    """Run a script on every usable card; EXTRA, after --, goes to the script and wins.

    Prints what was found, the batch plan and the exact command, then runs it. The exit status is
    the run's own.
    """
    recipe = load(recipe_name)
    devices = choose_devices(inventory(busy_above=busy_above), processes, cpu=cpu)
    solved = make_plan(recipe, devices.world, global_batch, per_device, extra)
    folder = (output or default_folder(recipe.name)).absolute()
    check_folder(folder)
    command = commands.build(
        recipe,
        script or Path(recipe.script),
        solved,
        folder,
        cards=[gpu.index for gpu in devices.cards],
        extra=extra,
    )
    click.echo(devices.found, err=True)
    click.echo(f"Plan: {solved.why}.", err=True)
    for argument in command.replaced:
        click.echo(f"Yours takes the place of the recipe's {argument}", err=True)
    if dry_run:
        click.echo(command.line)
        return
    _need_packages(solved.world)
    click.echo(f"Run folder: {folder}", err=True)
    click.echo(command.line, err=True)
    outcome = run(command, folder, facts=_facts(recipe, devices, solved), grace=grace)
    if outcome.left_behind:
        click.echo(f"Stopped {outcome.left_behind} process(es) that were left behind.", err=True)
    click.echo(
        f"The run {outcome.cause} after {outcome.seconds:.1f} s; log: {folder / LOG}", err=True
    )
    ctx.exit(outcome.status)


def choose_devices(found: Inventory, processes: int | None, *, cpu: bool = False) -> Devices:
    """How many processes, and on which cards.

    The CPU is taken where there is no card, or the user asks for it (`cpu`, or a
    CUDA_VISIBLE_DEVICES that hides every card), never because all cards are busy or the driver
    is out of order.

    Raises:
        InputError: cards exist but none can be used, or fewer than `processes`; or the driver
            cannot be asked.

    """
    if processes is not None and processes < 1:
        raise InputError(f"--processes {processes}: at least 1 is needed")
    cardless = not found.gpus and not found.broken
    if cpu or cardless or hides_every_card(os.environ.get("CUDA_VISIBLE_DEVICES")):
        world = processes or CPU_PROCESSES
        why = "" if cpu else f"{found.note} "
        many = "1 process" if world == 1 else f"{world} gloo processes"
        return Devices(world, (), f"{why}Running {many} on the CPU.")
    if found.broken:
        raise InputError(f"{found.note} Or pass --cpu")
    usable = found.usable
    left_out = [f"card {gpu.index}: {gpu.why_not}" for gpu in found.gpus if not gpu.usable]
    if not usable:
        reasons = "; ".join([*filter(None, [found.note]), *left_out])
        raise InputError(f"no card can be used ({reasons}); free one, or pass --cpu")
    if processes and processes > len(usable):
        what = "1 card" if len(usable) == 1 else f"{len(usable)} cards"
        raise InputError(f"--processes {processes}, but {what} can be used: one process per card")
    chosen = usable[:processes]
    names = ", ".join(f"{gpu.index} ({gpu.name})" for gpu in chosen)
    parts = [f"Using card{'s'[: len(chosen) > 1]} {names}.", *(f"Left out {x}." for x in left_out)]
    return Devices(len(chosen), chosen, " ".join([*filter(None, [found.note]), *parts]))


def make_plan(
    recipe: Recipe,
    world: int,
    global_batch: int | None,
    per_device: int | None,
    extra: tuple[str, ...] = (),
) -> Plan:
    """The plan for a recipe, with the user's numbers for the recipe's where there are any.

    A batch or accumulation flag among `extra` is kept, and the other one fitted to it.

    Raises:
        InputError: a number below 1, or a flag of `extra` without one.

    """
    batch, accumulation = commands.fixed_by(recipe, extra)
    target = recipe.batch.global_batch if global_batch is None else global_batch
    cap = recipe.batch.per_device_cap if per_device is None else per_device
    return solve(world, target, cap, per_device=batch, accumulation=accumulation)


def _facts(recipe: Recipe, devices: Devices, solved: Plan) -> dict[str, Any]:
    return {
        "recipe": recipe.name,
        "plan": attrs.asdict(solved),
        "cards": [attrs.asdict(gpu) for gpu in devices.cards],
    }


def _need_packages(world: int) -> None:
    """Fail before anything is written, rather than in N tracebacks."""
    for package in ["torch"] + ["accelerate"] * (world > 1):
        if importlib.util.find_spec(package) is None:
            raise InputError(f"{package} is not installed here: pip install 'ddpfix[train]'")


def _print_table(header: list[str], found: Inventory) -> None:
    rows = [_row(gpu) for gpu in found.gpus]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        table = Table(*header)
        for gpu, row in zip(found.gpus, rows, strict=True):
            table.add_row(*row, style="green" if gpu.usable else "dim")
        Console().print(table)
        return
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in [header, *rows]:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _row(gpu: Gpu) -> list[str]:
    return [
        str(gpu.index),
        gpu.name,
        f"{gpu.memory_used / GIB:.1f}",
        f"{gpu.memory_total / GIB:.1f}",
        ".".join(map(str, gpu.compute_capability or "?")),
        "?" if gpu.utilization is None else f"{gpu.utilization} %",
        gpu.why_not or "free",
    ]
