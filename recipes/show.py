"""Show recipes in tables: an overview, or every figure of one with its source."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from ..record import fields_of, is_record
from .load import load, recipe_names
from .model import Recipe

if TYPE_CHECKING:
    from rich.table import Table

NOT_FIGURES = ("name", "description", "aliases", "task", "family", "script", "sources")


def recipe_overview() -> list[dict[str, Any]]:
    """The recipes that come with ddpfix, with their main fields."""
    recipes = [load(name) for name in recipe_names()]
    return [
        {
            "name": recipe.name,
            "aliases": list(recipe.aliases),
            "family": recipe.family,
            "script": recipe.script,
            "global_batch": recipe.batch.global_batch,
            "description": recipe.description,
        }
        for recipe in recipes
    ]


def figures(recipe: Recipe) -> list[tuple[str, Any, str]]:
    """Every field with its value and its source, "" where it has none."""
    rows: list[tuple[str, Any]] = []
    for name in fields_of(Recipe):
        if name not in NOT_FIGURES:
            rows += _rows(name, getattr(recipe, name))
    return [(name, value, recipe.sources.get(name, "")) for name, value in rows]


def _rows(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Rows of a field: fields of tables as table.field, flags alone, and none if it is not set."""
    if is_record(value):
        for field in fields_of(type(value)):
            yield from _rows(f"{name}.{field}", getattr(value, field))
    elif isinstance(value, dict):
        for key, one in value.items():
            yield (key if name in ("arguments", "if_declared") else f"{name} {key}"), one
    elif value is not False and value not in (None, (), ""):
        yield name, list(value) if isinstance(value, tuple) else value


def print_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows in columns: a table on a terminal, plain text in a pipe."""
    cells = [[_text(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(terminal_table(header, cells))
        return
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    for row in (list(header), *cells):
        parts = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(parts).rstrip())


def terminal_table(header: Sequence[str], cells: Sequence[Sequence[str]]) -> Table:
    """The rows for a terminal; what is to be typed, in the first column, stays on one line."""
    from rich.table import Table

    table = Table()
    for position, title in enumerate(header):
        table.add_column(title, overflow="fold", no_wrap=not position)
    for row in cells:
        table.add_row(*row)
    return table


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
