"""What `ddpfix plan` and `ddpfix launch` have in common: their options, and the plan of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...errors import InputError
from ...recipes.model import Recipe
from ...record import as_dict
from ..gpus.select import Devices, GpuRequest, choose_cpu, choose_devices, choose_for_job
from ..planning.planner import FullPlan, PlanRequest, planned
from ..planning.precision import CHOICES
from .gpu_options import on_cards


def planning(function: Any) -> Any:
    """Give a command these options."""
    options = [
        click.option("--recipe", "recipe_name", required=True, help="Recipe name or file."),
        click.option(
            "--global-batch",
            type=int,
            help="Examples per optimizer step over all processes (default: the recipe's).",
        ),
        click.option(
            "--per-device",
            type=int,
            help="Most examples per device and micro-batch (default: the most that fit).",
        ),
        click.option(
            "--processes",
            type=int,
            help="Number of processes (default: one per usable card, 2 on the CPU).",
        ),
        click.option("--cpu", is_flag=True, help="Use the CPU even if there are GPUs."),
        click.option(
            "--script",
            type=click.Path(path_type=Path),
            help="Script to run (default: the recipe's, in the current folder).",
        ),
        click.option(
            "--exact",
            is_flag=True,
            help="Split each global batch as a script patched with --exact does (default: detected "
            "from the script).",
        ),
        click.option(
            "--precision",
            type=click.Choice(CHOICES),
            default="auto",
            help="Precision of a script that has --amp; auto: the best all cards support (default: "
            "auto).",
        ),
        click.option(
            "--probe",
            type=click.IntRange(min=1),
            metavar="N",
            help="Time N real optimizer steps first and correct this and later plans by them "
            "(default: no probe).",
        ),
    ]
    function = on_cards(function)
    for option in reversed(options):
        function = option(function)
    return function


def devices_for(
    wish: GpuRequest, processes: int | None, *, cpu: bool, job: bool = False
) -> Devices:
    """Where the processes go; `job`: where those of a batch job will."""
    if cpu:
        return choose_cpu(processes, named=wish.named or wish.kinds)
    choose = choose_for_job if job else choose_devices
    return choose(wish.look(), processes, named=wish.named)


def plan_for(
    asked: PlanRequest, devices: Devices, probe: int | None, backend: str | None = None
) -> FullPlan:
    """The plan, behind a probe of so many steps if one is asked for."""
    if not probe:
        return planned(asked, devices)
    from ..backends.registry import chosen, need_packages
    from ..running.probe import probed

    need_packages(chosen(backend, devices.world))
    click.echo(f"Timing {probe} optimizer steps after one to warm up.", err=True)
    return probed(asked, devices, probe, backend)


def refuse_simulated(wish: GpuRequest) -> None:
    """Raise InputError where cards are meant on which nothing can run."""
    if wish.kinds:
        raise InputError(
            f"--gpus {','.join(wish.kinds)!r}: nothing can run on simulated cards; see what would "
            "with --dry-run or --emit"
        )


def facts_of(recipe: Recipe, devices: Devices, found: FullPlan) -> dict[str, Any]:
    """What is decided, as JSON can hold it."""
    return {
        "recipe": recipe.name,
        **found.facts(),
        "cards": [as_dict(gpu) for gpu in devices.cards],
    }
