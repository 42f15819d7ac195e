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
        click.option("--recipe", "recipe_name", required=True, help="A recipe's name or file."),
        click.option("--global-batch", type=int, help="Examples per optimizer step over all."),
        click.option("--per-device", type=int, help="The most examples a device takes at once."),
        click.option("--processes", type=int, help="How many; else one per usable card."),
        click.option("--cpu", is_flag=True, help="Use the CPU even where there are cards."),
        click.option(
            "--script",
            type=click.Path(path_type=Path),
            help="Else the recipe's, in this folder.",
        ),
        click.option(
            "--exact",
            is_flag=True,
            help="Ranks share each batch out: for a script of `patch --exact`, which is known as "
            "such by itself.",
        ),
        click.option(
            "--precision",
            type=click.Choice(CHOICES),
            default="auto",
            help="bf16, fp16 or fp32 for a script that has --amp; by the cards unless given.",
        ),
        click.option(
            "--probe",
            type=click.IntRange(min=1),
            metavar="N",
            help="First time N real optimizer steps of the script; what they tell is kept.",
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
