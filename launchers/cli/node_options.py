"""The options by which a user says that several machines train together."""

from __future__ import annotations

import functools
from typing import Any

import click

from ...errors import InputError
from ..backends.nodes import PORT, nodes_from_options

OPTIONS = (
    click.option(
        "--nnodes",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Number of machines; --processes then counts per machine.",
    ),
    click.option("--node-rank", type=click.IntRange(min=0), help="This machine's number, from 0."),
    click.option(
        "--rdzv",
        metavar="HOST[:PORT]",
        help=f"Address of machine 0 and a free port on it (default: port {PORT}).",
    ),
)


def on_nodes(function: Any) -> Any:
    """Give a command these options, as one argument `machines`."""

    @functools.wraps(function)
    def together(
        *words: Any, nnodes: int, node_rank: int | None, rdzv: str | None, **others: Any
    ) -> Any:
        job = others["emit"] == "sbatch"
        machines = nodes_from_options(nnodes, node_rank, rdzv, job=job)
        if machines.meeting and others["output"] is None:
            raise InputError(
                f"--nnodes {nnodes}: pass --output, a folder that all machines share: rank 0 saves "
                "there what the others read"
            )
        return function(*words, machines=machines, **others)

    for option in reversed(OPTIONS):
        together = option(together)
    return together
