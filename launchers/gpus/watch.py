"""``ddpfix gpus --watch``: show the cards repeatedly until Ctrl-C."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

import click

from ...record import as_dict
from .table import format_line, rich_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from .model import Inventory


def watch(look: Callable[[], Inventory], interval: float, *, as_json: bool) -> None:
    """Show the inventory from `look` every `interval` seconds.

    On a terminal the table is updated in place, otherwise a line is printed each time. `look`
    queries NVML anew each time, so a driver or a card may vanish and come back.
    """
    try:
        if sys.stdout.isatty() and not as_json:
            _update_in_place(look, interval)
        while True:
            click.echo(_as_json(look()) if as_json else f"{_now():%H:%M:%S}  {format_line(look())}")
            sys.stdout.flush()  # for the reader of a pipe
            time.sleep(interval)
    except KeyboardInterrupt:
        return


def _update_in_place(look: Callable[[], Inventory], interval: float) -> None:
    from rich.console import Group
    from rich.live import Live

    def render() -> RenderableType:
        inventory = look()
        parts = [f"{_now():%H:%M:%S}  driver {inventory.driver or '?'}", inventory.note]
        table = [rich_table(inventory, bars=True)] if inventory.gpus else []
        return Group(*filter(None, parts), *table)

    with Live(render(), auto_refresh=False, screen=True) as live:
        while True:
            time.sleep(interval)
            live.update(render(), refresh=True)


def _as_json(inventory: Inventory) -> str:
    now = _now().isoformat(timespec="milliseconds")
    return json.dumps({"time": now, **as_dict(inventory)})


def _now() -> datetime:
    return datetime.now().astimezone()
