"""``ddpfix gpus --watch``: the cards again and again, until Ctrl-C."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

import click

from ...record import as_dict
from .table import line, rich_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from .model import Inventory


def watch(look: Callable[[], Inventory], every: float, *, as_json: bool) -> None:
    """Show what `look` finds every so many seconds: on a terminal in place, else a line each.

    NVML is asked anew each time, so that a driver or a card that goes away is shown as such and a
    later look finds it again.
    """
    try:
        if sys.stdout.isatty() and not as_json:
            _in_place(look, every)
        while True:
            click.echo(_as_json(look()) if as_json else f"{_now():%H:%M:%S}  {line(look())}")
            sys.stdout.flush()  # a pipe's reader wants it now
            time.sleep(every)
    except KeyboardInterrupt:
        return


def _in_place(look: Callable[[], Inventory], every: float) -> None:
    from rich.console import Group
    from rich.live import Live

    def shown() -> RenderableType:
        found = look()
        parts = [f"{_now():%H:%M:%S}  driver {found.driver or '?'}", found.note]
        table = [rich_table(found, bars=True)] if found.gpus else []
        return Group(*filter(None, parts), *table)

    with Live(shown(), auto_refresh=False, screen=True) as live:
        while True:
            time.sleep(every)
            live.update(shown(), refresh=True)


def _as_json(found: Inventory) -> str:
    now = _now().isoformat(timespec="milliseconds")
    return json.dumps({"time": now, **as_dict(found)})


def _now() -> datetime:
    return datetime.now().astimezone()
