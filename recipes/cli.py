"""``ddpfix recipes``: list them, show one with its sources, make one from a shell file."""

from __future__ import annotations

import json
import os
import textwrap
from pathlib import Path

import click

from ..command_help import HelpfulCommand, HelpfulGroup
from ..errors import InputError
from ..record import as_dict
from . import model
from .load import complete_recipes, load, recipe_toml
from .parse import parse
from .show import figures, print_table, recipe_overview

MARGIN = 22  # where the text of a field begins, in the manual of the fields
DEFAULT_NAME = "recipe"


def fields() -> str:
    """What the fields of a recipe mean, at the width of the help."""
    names, texts = [], []
    for line in (model.__doc__ or "").partition("::\n\n")[2].splitlines():
        name, text = line[:MARGIN].strip(), line[MARGIN:].strip()
        if name:
            names.append(name)
            texts.append(text)
        elif text:
            texts[-1] += f" {text}"
    return "".join(
        textwrap.fill(text, 76, initial_indent=f"{name:22}", subsequent_indent=22 * " ") + "\n"
        for name, text in zip(names, texts, strict=True)
    )


@click.group(
    cls=HelpfulGroup, invoke_without_command=True, epilog="\b\nFields of a recipe:\n" + fields()
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def recipes(ctx: click.Context, as_json: bool) -> None:
    """List the recipes shipped with ddpfix, show one, or create one from a shell file."""
    if ctx.invoked_subcommand:
        return
    overview = recipe_overview()
    if as_json:
        click.echo(json.dumps(overview, indent=2))
        return
    rows = [
        (", ".join([recipe["name"], *recipe["aliases"]]), recipe["script"], recipe["description"])
        for recipe in overview
    ]
    print_table(("recipe", "script", "what it is"), rows)


@recipes.command(cls=HelpfulCommand)
@click.argument("name", shell_complete=complete_recipes)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--toml", "as_toml", is_flag=True, help="Print the TOML file, as a template.")
def show(name: str, as_json: bool, as_toml: bool) -> None:
    """Print every value of a recipe (NAME or a file) with its source."""
    recipe = load(name)
    if as_toml:
        click.echo(recipe_toml(name), nl=False)
    elif as_json:
        click.echo(json.dumps(as_dict(recipe), indent=2))
    else:
        click.echo(f"{recipe.name}: {recipe.description}")
        click.echo(f"{recipe.script}, {recipe.task}")
        print_table(("figure", "value", "source"), figures(recipe))


@recipes.command(cls=HelpfulCommand)
@click.option(
    "--from",
    "shell_file",
    required=True,
    type=click.Path(path_type=Path),
    help="Shell file that starts a training.",
)
@click.option(
    "--output", type=click.Path(path_type=Path), help="New file to write (default: print it)."
)
@click.option("--line", type=int, help="Line of the command to read, if several start a training.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def new(
    shell_file: Path, output: Path | None, line: int | None, arguments: tuple[str, ...]
) -> None:
    """Create a recipe from a shell file such as run.sh, which is read but never run.

    ARGUMENTS, after --, are the shell file's own: $1 and so on. Other variables are taken from
    your environment. Assumptions and lines that could not be read are reported, and noted in the
    recipe as comments.
    """
    from .from_shell.convert import recipe_text

    text, notes = recipe_text(shell_file, arguments, os.environ, line)
    name = output.stem if output else DEFAULT_NAME
    parse(text, source=str(output or shell_file), name=name)
    for note in notes:
        click.echo(f"{shell_file}: {note}", err=True)
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InputError(f"--output {output}: {error.strerror}: name another file") from None
    click.echo(f"Written: {output}; next: ddpfix launch --recipe {output} --dry-run", err=True)
