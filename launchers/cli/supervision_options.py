"""The options by which a user says how a run is looked after."""

from __future__ import annotations

import functools
from typing import Any

import attrs
import click

from ..running.watchdog import SilenceLimits

HANG_AFTER = 1800.0
"""Seconds; gloo waits as long for a rank, NCCL 600."""


@attrs.frozen
class SupervisionPolicy:
    """How long a run may take to end or be silent, in seconds, and what follows a failure."""

    grace: float = 30.0
    hang_after: float | None = None
    retry: bool = True
    learned: bool = True
    max_restarts: int = 0
    rank_logs: bool = True

    @property
    def patience(self) -> SilenceLimits:
        """How long it may be silent."""
        if self.hang_after is None:
            return SilenceLimits(hung=HANG_AFTER, from_first_step=True)
        return SilenceLimits(hung=self.hang_after)


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


def with_care(function: Any) -> Any:
    """Give a command these options, as one argument `care`."""

    @functools.wraps(function)
    def caring(
        *words: Any,
        grace: float,
        hang_after: float | None,
        no_retry: bool,
        no_learned: bool,
        max_restarts: int,
        rank_logs: bool,
        **others: Any,
    ) -> Any:
        care = SupervisionPolicy(
            grace, hang_after, not no_retry, not no_learned, max_restarts, rank_logs
        )
        return function(*words, care=care, **others)

    for option in reversed(OPTIONS):
        caring = option(caring)
    return caring
