"""Read ``[tool.ddpfix]`` from the nearest pyproject.toml that has it."""

from __future__ import annotations

import os
from typing import Any

from ...errors import InputError
from ...record import record
from ..source.files import read_regular
from .discover import folder_and_parents
from .output import FORMATS

SECTION = b"ddpfix"


@record
class Config:
    """A project's settings; the command line overrides them."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    notes: bool = False
    output_format: str = "full"
    jobs: int | None = None  # None: one process per CPU
    unsafe_fixes: bool = False
    capabilities: tuple[str, ...] = ()
    file: str | None = None


def read_config(start: str) -> Config:
    """The settings for files in the folder ``start``, which is absolute.

    Raises InputError, naming file and line, for a key or a value that cannot be used.
    """
    for folder in folder_and_parents(start):
        file = os.path.join(folder, "pyproject.toml")
        try:
            data = read_regular(file)
        except OSError:
            continue
        if SECTION in data and (table := section(file, data)) is not None:
            return Config(**values(file, data, table), file=file)
    return Config()


def section(file: str, data: bytes) -> dict[str, Any] | None:
    """The table ``tool.ddpfix``; None where there is none. Raises InputError."""
    import re  # few projects have settings
    import tomllib

    try:
        table = tomllib.loads(data.decode()).get("tool", {}).get("ddpfix")
    except (ValueError, AttributeError, RecursionError) as error:
        line = re.search(r"line (\d+)", str(error))
        place = f"{file}:{line[1]}" if line else str(file)
        raise InputError(f"{place}: not valid TOML ({error}); correct it") from error
    if table is not None and not isinstance(table, dict):
        raise InputError(f"{at(file, data, 'ddpfix')}: ddpfix is to be a table: [tool.ddpfix]")
    return table


def values(file: str, data: bytes, table: dict[str, Any]) -> dict[str, Any]:
    """Check a table's keys and values; returns settings by field. Raises InputError."""
    settings = {}
    for key, value in table.items():
        field = key.replace("-", "_")
        place = at(file, data, key)
        if key not in KINDS:
            from difflib import get_close_matches

            close = get_close_matches(key, KINDS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"it has {', '.join(KINDS)}"
            raise InputError(f"{place}: [tool.ddpfix] has no key {key}; {hint}")
        wanted, accept = KINDS[key]
        if not accept(value):
            raise InputError(f"{place}: {key} is to be {wanted}, not {value!r}")
        if isinstance(value, list):
            value = tuple(value)
        settings[field] = None if value == "auto" else value
    return settings


def at(file: str, data: bytes, key: str) -> str:
    """``file:line`` of a key, or of the table where the key is not found."""
    import re

    start = re.search(rb"^\s*\[\s*tool\s*\.\s*ddpfix\s*\]", data, re.MULTILINE)
    head = data[: start.end()] if start else b""
    word = re.escape(key.encode())
    match = re.search(rb"^.*?" + word + rb"[\"']?\s*=", data[len(head) :], re.MULTILINE)
    line = (head + data[len(head) :][: match.start()] if match else head).count(b"\n") + 1
    return f"{file}:{line}"


def is_strings(value: object) -> bool:
    """Whether a value is a list of strings."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def is_jobs(value: object) -> bool:
    """Whether a value is a number of processes, or auto."""
    return value == "auto" or (type(value) is int and value > 0)


LIST = ("a list of strings", is_strings)
FLAG = ("true or false", lambda value: isinstance(value, bool))
KINDS = {
    "select": LIST,
    "ignore": LIST,
    "exclude": LIST,
    "notes": FLAG,
    "output-format": (f"one of {', '.join(FORMATS)}", lambda value: value in list(FORMATS)),
    "jobs": ('a positive number or "auto"', is_jobs),
    "unsafe-fixes": FLAG,
    "capabilities": LIST,
}
