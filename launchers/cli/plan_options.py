"""Options that `ddpfix plan` and `ddpfix launch` share."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import click

from ...completion import files
from ...errors import InputError
from ...recipes.load import complete_recipes, load
from ...record import fields_of
from ..gpus.select import GpuRequest
from ..planning.options import PlanOptions
from ..planning.precision import CHOICES
from .gpu_options import with_gpu_options


def read_precision(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """The precision; `no` is accelerate's word for fp32."""
    return "fp32" if value == "no" else value


def read_processes(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """The number of processes; None for torchrun's words for one per card."""
    if value is None or value in ("gpu", "auto"):
        return None
    try:
        return int(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is no number, nor gpu or auto") from None


def _refuse_flags(batch_flag: str | None, accumulation_flag: str | None) -> None:
    for option, flag in (("--batch-flag", batch_flag), ("--accumulation-flag", accumulation_flag)):
        if flag is not None:
            raise InputError(f"{option} {flag}: leave it out, --recipe names the script's options")


def with_plan_options(function: Any) -> Any:
    """Add these options to a command, and EXTRA, as one argument `plan_options`."""
    options = [
        click.argument("extra", nargs=-1, type=click.UNPROCESSED, shell_complete=files),
        click.option(
            "--recipe",
            "recipe_name",
            metavar="NAME",
            shell_complete=complete_recipes,
            help="Recipe name or file (default: none, the script and its arguments tell).",
        ),
        click.option(
            "--batch-flag",
            metavar="FLAG",
            help="The script's option for its training batch (default: told from the script).",
        ),
        click.option(
            "--accumulation-flag",
            metavar="FLAG",
            help="The script's option for gradient accumulation (default: told from the script).",
        ),
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
            "--nproc-per-node",
            "--num-processes",
            callback=read_processes,
            metavar="N|gpu|auto",
            help="Number of processes; gpu and auto are torchrun's words for the default (default: "
            "one per usable card, 2 on the CPU).",
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
            "--mixed-precision",
            type=click.Choice((*CHOICES, "no")),
            callback=read_precision,
            default="auto",
            help="Precision of a script that has --amp; auto: the best all cards support, no: fp32 "
            "(default: auto).",
        ),
        click.option(
            "--probe",
            type=click.IntRange(min=1),
            metavar="N",
            help="Time N real optimizer steps first and correct this and later plans by them "
            "(default: no probe).",
        ),
    ]

    @functools.wraps(function)
    def with_options(
        *words: Any,
        recipe_name: str | None,
        batch_flag: str | None,
        accumulation_flag: str | None,
        script: Path | None,
        gpu_request: GpuRequest,
        extra: tuple[str, ...],
        **others: Any,
    ) -> Any:
        mine = {*fields_of(PlanOptions)} & others.keys()
        wishes = {name: others.pop(name) for name in mine}
        if recipe_name is None:
            from .command_line import read_request  # reads the script; a recipe needs none

            found = read_request(
                extra, script=script, batch_flag=batch_flag, accumulation_flag=accumulation_flag
            )
            plan_options = PlanOptions(
                found.recipe.recipe,
                found.script,
                gpu_request,
                extra=found.recipe.extra,
                environment=found.environment,
                is_command=True,
                command_python=found.python,
                module=found.module,
                remarks=found.recipe.remarks,
                unknown_model=found.unknown_model,
                **wishes,
            )
        else:
            _refuse_flags(batch_flag, accumulation_flag)
            recipe = load(recipe_name)
            plan_options = PlanOptions(
                recipe, script or Path(recipe.script), gpu_request, extra=extra, **wishes
            )
        return function(*words, plan_options=plan_options, **others)

    decorated = with_gpu_options(with_options)
    for option in reversed(options):
        decorated = option(decorated)
    return decorated
