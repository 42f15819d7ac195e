"""The options by which a user says how a run is supervised."""

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
        help="Seconds to end after Ctrl-C or SIGTERM before everything is killed.",
    ),
    click.option(
        "--hang-after",
        type=click.FloatRange(min=0),
        help="Seconds without output after which stacks are dumped and it is stopped; 0: never. "
        f"Unless given, {HANG_AFTER:g} from the first progress bar on.",
    ),
    click.option(
        "--no-retry",
        is_flag=True,
        help="Out of memory, stop instead of going on with less of it.",
    ),
    click.option(
        "--no-learned",
        is_flag=True,
        help="Start with all that the plan says, whatever was out of memory before.",
    ),
    click.option(
        "--max-restarts",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="Start again after other failures, so many times; on several machines and in emitted "
        "files torch elastic does.",
    ),
    click.option(
        "--rank-logs/--no-rank-logs",
        default=True,
        show_default=True,
        help="Keep each rank's output in ranks/RANK.log of the run folder, and show the first's; "
        "else show all ranks' at once.",
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
