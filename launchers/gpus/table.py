"""Print the cards as a table, in colour on a terminal, or as one line for a log."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from .model import Link
from .topology import PATH_MEANINGS

if TYPE_CHECKING:
    from rich.table import Table

    from .model import Gpu, Inventory

GIB = 1 << 30
HEADER = ("card", "name", "used / GiB", "total / GiB", "cc", "load", "temp", "power / W", "state")
BAR = 12  # characters


def print_table(inventory: Inventory) -> None:
    """Print all cards and the links between them to standard output."""
    if not inventory.gpus:
        return
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(rich_table(inventory, bars=False))
    else:
        _print_plain([HEADER, *(_row(gpu) for gpu in inventory.gpus)])
    for line in (*_slices(inventory), *_links(inventory.links)):
        click.echo(line)


def rich_table(inventory: Inventory, *, bars: bool) -> Table:
    """The cards as a table for a terminal; `bars` adds bars for memory and load."""
    from rich.table import Table

    table = Table()
    for title in HEADER:
        table.add_column(title, overflow="fold")  # nothing of a card's name or state is cut
    for gpu in inventory.gpus:
        row = list(_row(gpu))
        if bars:
            row[2] += f" {_bar(gpu.memory_used, gpu.memory_total)}"
            row[5] += f" {_bar(gpu.utilization or 0, 100)}"
        table.add_row(*row, style="green" if gpu.usable else "dim")
    return table


def format_line(inventory: Inventory) -> str:
    """Format all cards in one line for a log."""
    return " | ".join(map(_brief, inventory.gpus)) or inventory.note


def _row(gpu: Gpu) -> tuple[str, ...]:
    limit = "" if gpu.power_limit is None else f" of {gpu.power_limit:.0f}"
    return (
        str(gpu.index),
        gpu.name,
        f"{gpu.memory_used / GIB:.1f}",
        f"{gpu.memory_total / GIB:.1f}",
        ".".join(map(str, gpu.compute_capability or "?")),
        "?" if gpu.utilization is None else f"{gpu.utilization} %",
        "?" if gpu.temperature is None else f"{gpu.temperature} °C",
        "?" if gpu.power is None else f"{gpu.power:.0f}{limit}",
        _state(gpu),
    )


def _state(gpu: Gpu) -> str:
    if gpu.why_not:
        return gpu.why_not
    pids = ", ".join(str(process.pid) for process in gpu.processes)
    return f"free, with process {pids}" if pids else "free"


def _brief(gpu: Gpu) -> str:
    _, _, used, total, _, load, degrees, power, state = _row(gpu)
    numbers = f"{load}, {used} of {total} GiB, {degrees}, {power.split(' ')[0]} W"
    return f"{gpu.index}: {numbers if gpu.memory_total else state}"


def _bar(part: int, whole: int) -> str:
    filled = round(BAR * part / whole) if whole else 0
    return "█" * filled + "░" * (BAR - filled)


def _print_plain(rows: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _slices(inventory: Inventory) -> Iterator[str]:
    for gpu in inventory.gpus:
        for part in gpu.slices:
            size = f"{part.memory_total / GIB:.1f} GiB"
            yield f"card {gpu.index} has the slice {part.uuid}: {part.name}, {size}"


def _links(links: tuple[Link, ...]) -> Iterator[str]:
    """One line for each kind of link."""
    for path in dict.fromkeys(link.path for link in links):
        pairs = ", ".join(f"{link.first}-{link.second}" for link in links if link.path == path)
        meaning = PATH_MEANINGS[path.rstrip("0123456789")]
        yield f"joined by {path} ({meaning}): {pairs}"
