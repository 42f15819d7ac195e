"""What a shell offers on Tab for cards and runs."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click

from ...completion import files, matching, matching_last
from ...errors import InputError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def cards(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The cards of this machine, by index, with their names and why one is not usable."""
    from ..gpus.select import GpuRequest

    with contextlib.suppress(InputError):
        found = GpuRequest().take_inventory().gpus
        words = {str(one.index): one.name + (one.why_not and f": {one.why_not}") for one in found}
        return matching_last(words, incomplete)
    return []


def runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The runs of this project and of the state folder, the latest first; or a folder."""
    from ..running import history

    found, _ = history.read_all(history.run_folders())
    states = {run.folder.name: str(run.facts()["state"]) for run in reversed(found)}
    return matching(states, incomplete) or files(ctx, param, incomplete)
