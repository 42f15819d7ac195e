"""Find a recipe by its name, an alias or a path, and read it."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..completion import matching
from ..errors import InputError
from .model import OPTIONAL_TABLES, SUBTABLES, Recipe

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem

SHIPPED = Path(__file__).parent


def recipe_names() -> list[str]:
    """The names of the recipes that come with ddpfix, sorted."""
    return sorted(file.stem for file in SHIPPED.glob("*.toml"))


def complete_recipes(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The shipped recipes' names for a shell, with what they train."""
    names = [name for name in recipe_names() if name.startswith(incomplete)]
    return matching({name: _shipped(name).description for name in names}, incomplete)


def load(name_or_path: str) -> Recipe:
    """Read a recipe by its name, or from the TOML file at a path.

    Raises:
        InputError: an unknown name (the message lists the known ones), a file that cannot be read
            or is no TOML, a field that is missing, unknown or of the wrong kind.

    """
    if _is_path(name_or_path):
        from .parse import parse  # imports cattrs, which shipped recipes do not need

        text = _read(Path(name_or_path))
        return parse(text, source=name_or_path, name=Path(name_or_path).stem)
    if name_or_path in recipe_names():
        return _shipped(name_or_path)
    # Aliases come last, as all recipes have to be read for them.
    for recipe in map(_shipped, recipe_names()):
        if name_or_path in recipe.aliases:
            return recipe
    raise InputError(_unknown(name_or_path))


def recipe_toml(name_or_path: str) -> str:
    """The text of a recipe's file. Raises InputError as `load` does."""
    if _is_path(name_or_path):
        return _read(Path(name_or_path))
    return _shipped_text(load(name_or_path).name)


def _is_path(name_or_path: str) -> bool:
    return name_or_path.endswith(".toml") or Path(name_or_path).name != name_or_path


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}: pass a recipe's name or file") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}") from None


def _shipped(name: str) -> Recipe:
    """Read a recipe of ddpfix's own, without validation."""
    fields = tomllib.loads(_shipped_text(name))
    nested = {
        key: kind(**_hashable(fields[key])) for key, kind in SUBTABLES.items() if key in fields
    }
    tables = {key: fields.get(key, {}) for key in OPTIONAL_TABLES}
    return Recipe(**{**_hashable(fields), **nested, **tables, "name": name})


def _hashable(fields: dict[str, Any]) -> dict[str, Any]:
    """``fields`` with tuples for lists, as the records have them."""
    return {
        key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()
    }


def _shipped_text(name: str) -> str:
    return (SHIPPED / f"{name}.toml").read_text(encoding="utf-8")


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, recipe_names(), n=1, cutoff=0.4)
    hint = f"did you mean {close[0]}? " if close else ""
    return (
        f"no recipe {name!r}: {hint}Known: {', '.join(recipe_names())}; or the path of a TOML file"
    )
