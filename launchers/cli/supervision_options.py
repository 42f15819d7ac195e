"""Options that supervise a run."""

from __future__ import annotations

import functools
from typing import Any

import click

from ..running.policy import HANG_AFTER, SupervisionPolicy

OPTIONS = (
    click.option(
        "--grace",
        type=click.FloatRange(min=0),
        default=30.0,
        show_default=True,
        help="Seconds the run gets to end after Ctrl-C or SIGTERM before it is killed.",
    ),
    click.option(
        "--hang-after",
        type=click.FloatRange(min=0),
        help="Seconds without output after which all stacks are logged and the run is stopped; 0 "
        f"turns it off (default: {HANG_AFTER:g}, once a progress bar has appeared).",
    ),
    click.option(
        "--no-retry",
        is_flag=True,
        help="Stop when out of memory instead of retrying with less.",
    ),
    click.option(
        "--no-learned",
        is_flag=True,
        help="Ignore what earlier runs learned after running out of memory.",
    ),
    click.option(
        "--max-restarts",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="Restarts after other failures; torch elastic does them on several machines and in "
        "emitted files.",
    ),
    click.option(
        "--rank-logs/--no-rank-logs",
        default=True,
        show_default=True,
        help="Write each rank's output to ranks/RANK.log and show only the first rank's; otherwise "
        "show all ranks.",
    ),
)


def with_supervision(function: Any) -> Any:
    """Add these options to a command, as one argument `policy`."""

    @functools.wraps(function)
    def with_policy(
        *words: Any,
        grace: float,
        hang_after: float | None,
        no_retry: bool,
        no_learned: bool,
        max_restarts: int,
        rank_logs: bool,
        **others: Any,
    ) -> Any:
        policy = SupervisionPolicy(
            grace, hang_after, not no_retry, not no_learned, max_restarts, rank_logs
        )
        return function(*words, policy=policy, **others)

    for option in reversed(OPTIONS):
        with_policy = option(with_policy)
    return with_policy
