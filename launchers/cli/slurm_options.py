"""Options that submit a run to Slurm."""

from __future__ import annotations

import functools
from typing import Any

import attrs
import click

from ...errors import InputError


@attrs.frozen
class SlurmJob:
    """Whether the run is queued as a job, and with which more options for sbatch."""

    submit: bool = False
    words: tuple[str, ...] = ()


OPTIONS = (
    click.option(
        "--submit",
        is_flag=True,
        help="Submit as a Slurm job; the job script is saved as job.sh in the run folder.",
    ),
    click.option(
        "--sbatch",
        multiple=True,
        metavar="OPTION",
        help="Extra option for sbatch, as in --sbatch=--time=600; can be repeated.",
    ),
)


def with_slurm_options(function: Any) -> Any:
    """Add these options to a command, as one argument `job`; `emit` is sbatch where they say so."""

    @functools.wraps(function)
    def with_job(
        *words: Any, submit: bool, sbatch: tuple[str, ...], emit: str | None, **others: Any
    ) -> Any:
        if submit and emit not in (None, "sbatch"):
            raise InputError(f"--submit queues a job of --emit sbatch: leave out --emit {emit}")
        if sbatch and not submit:
            raise InputError(f"--sbatch {sbatch[0]}: it is for --submit")
        return function(
            *words, job=SlurmJob(submit, sbatch), emit="sbatch" if submit else emit, **others
        )

    for option in reversed(OPTIONS):
        with_job = option(with_job)
    return with_job
