"""The script and the local modules it imports, read as one unit."""

from __future__ import annotations

import ast
from pathlib import Path

from ..errors import InputError
from .facts import Unit
from .module import Module
from .sources import decode, read_bytes


def read_unit(path: Path, data: bytes | None = None) -> Unit:
    """The unit whose script is ``path``; ``data`` stands in for the file's bytes.

    A sibling that cannot be parsed is left out: its own check reports it.
    Raises InputError when the script itself cannot be read or parsed.
    """
    script = Module(decode(path, read_bytes(path) if data is None else data))
    return with_siblings(script)


def with_siblings(script: Module) -> Unit:
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
        for name in imported(pending.pop()):
            path = folder.joinpath(*name.split(".")).with_suffix(".py")
            if path in seen or not path.is_file():
                continue
            seen.add(path)
            try:
                module = Module(decode(path, read_bytes(path)))
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
