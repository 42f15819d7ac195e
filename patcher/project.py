"""The script and the local modules it imports, read as one unit."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

from ..errors import InputError
from .facts import Unit
from .module import Module
from .sources import decode, read_bytes

Look = Callable[[Path], bytes | None]


def look(path: Path) -> bytes | None:
    """The bytes of ``path``, None where there is no such file. Raises InputError."""
    return read_bytes(path) if path.is_file() else None


def read_unit(path: Path, data: bytes | None = None, look: Look = look) -> Unit:
    """The unit whose script is ``path``; ``data`` stands in for the file's bytes.

    Every other file is looked for with ``look``, so that a caller can tell what the unit rests on.
    A sibling that cannot be parsed is left out: its own check reports it.
    Raises InputError when the script itself cannot be read or parsed.
    """
    script = Module(decode(path, read_bytes(path) if data is None else data))
    return with_siblings(script, look)


def with_siblings(script: Module, look: Look = look) -> Unit:
    """The unit of ``script`` with the modules beside it that it imports, directly or not.

    A module of a library is a unit of its own.
    """
    if not script.is_program:
        return Unit(script)
    folder = script.source.path.resolve().parent
    seen = {script.source.path.resolve()}
    siblings: list[Module] = []
    pending = [script]
    while pending:
        for name in sorted(imported(pending.pop())):
            path = folder.joinpath(*name.split(".")).with_suffix(".py")
            if path in seen:
                continue
            seen.add(path)
            try:
                data = look(path)
                if data is None:
                    continue
                module = Module(decode(path, data))
            except InputError:
                continue
            siblings.append(module)
            pending.append(module)
    return Unit(script, tuple(siblings))


def imported(module: Module) -> set[str]:
    """Dotted names of the modules that a file imports."""
    names = {alias.name for node in module.nodes(ast.Import) for alias in node.names}
    for node in module.nodes(ast.ImportFrom):
        if node.module:
            names.add(node.module)
    return names
