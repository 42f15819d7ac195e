"""Options of a run on several machines."""

from __future__ import annotations

import functools
from typing import Any

import click

from ...errors import InputError
from ..backends.nodes import PORT, nodes_from_options

OPTIONS = (
    click.option(
        "--nnodes",
        "--num-machines",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Number of machines; --processes then counts per machine.",
    ),
    click.option(
        "--node-rank",
        "--machine-rank",
        type=click.IntRange(min=0),
        help="This machine's number, from 0.",
    ),
    click.option(
        "--rdzv",
        "--rdzv-endpoint",
        metavar="HOST[:PORT]",
        help=f"Address of machine 0 and a free port on it (default: port {PORT}).",
    ),
)


def with_node_options(function: Any) -> Any:
    """Add these options to a command, as one argument `nodes`."""

    @functools.wraps(function)
    def with_nodes(
        *words: Any, nnodes: int, node_rank: int | None, rdzv: str | None, **others: Any
    ) -> Any:
        job = others["emit"] == "sbatch"
        nodes = nodes_from_options(nnodes, node_rank, rdzv, job=job)
        if nodes.meeting and others["output"] is None:
            raise InputError(
                f"--nnodes {nnodes}: pass --output, a folder that all machines share: rank 0 saves "
                "there what the others read"
            )
        return function(*words, nodes=nodes, **others)

    for option in reversed(OPTIONS):
        with_nodes = option(with_nodes)
    return with_nodes
