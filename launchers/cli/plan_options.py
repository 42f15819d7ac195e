"""Options that `ddpfix plan` and `ddpfix launch` share."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import click

from ...recipes.load import load
from ...record import fields_of
from ..gpus.select import GpuRequest
from ..planning.options import PlanOptions
from ..planning.precision import CHOICES
from .gpu_options import with_gpu_options


def with_plan_options(function: Any) -> Any:
    """Add these options to a command, and EXTRA, as one argument `plan_options`."""
    options = [
        click.argument("extra", nargs=-1, type=click.UNPROCESSED),
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

    @functools.wraps(function)
    def with_options(
        *words: Any,
        recipe_name: str,
        script: Path | None,
        gpu_request: GpuRequest,
        extra: tuple[str, ...],
        **others: Any,
    ) -> Any:
        recipe = load(recipe_name)
        mine = {*fields_of(PlanOptions)} & others.keys()
        plan_options = PlanOptions(
            recipe,
            script or Path(recipe.script),
            gpu_request,
            extra=extra,
            **{name: others.pop(name) for name in mine},
        )
        return function(*words, plan_options=plan_options, **others)

    decorated = with_gpu_options(with_options)
    for option in reversed(options):
        decorated = option(decorated)
    return decorated
