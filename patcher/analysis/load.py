"""Load a script and the local modules it imports as one program."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from functools import lru_cache

from ...errors import InputError
from ..source.files import Source, decode, read_bytes
from ..source.module import MAX_CACHED_FILES, Module
from .program import Program

SourceReader = Callable[[str], Source | None]


def read_source(path: str) -> Source | None:
    """Read ``path``; None where there is no such file. Raises InputError."""
    return decode(path, read_bytes(path)) if os.path.isfile(path) else None


def read_program(path: str, data: bytes | None = None, look: SourceReader = read_source) -> Program:
    """Read the program whose script is ``path``; ``data`` replaces the file's content.

    All other files are read through ``look``, which lets a caller record what the program depends
    on. A sibling that cannot be parsed is left out: checking that file itself reports the error.
    Raises InputError when the script itself cannot be read or parsed.
    """
    script = module_of(decode(path, read_bytes(path) if data is None else data))
    return with_siblings(script, look)


def with_siblings(script: Module, look: SourceReader = read_source) -> Program:
    """The program of ``script`` and the modules in its folder that it imports, also indirectly.

    A library module becomes a program without siblings.
    """
    if not script.is_program:
        return Program(script)
    script_path = os.path.realpath(script.source.name)
    folder = os.path.dirname(script_path)
    seen = {script_path}
    siblings: list[Module] = []
    pending = [script]
    while pending:
        for name in sorted(imported(pending.pop())):
            path = os.path.join(folder, name.replace(".", os.sep) + ".py")
            if path in seen:
                continue
            seen.add(path)
            try:
                source = look(path)
                if source is None:
                    continue
                module = module_of(source)
            except InputError:
                continue
            siblings.append(module)
            pending.append(module)
    return Program(script, tuple(siblings))


@lru_cache(maxsize=MAX_CACHED_FILES)
def module_of(source: Source) -> Module:
    """Parse a file.

    Cached, because several scripts may import it. Programs do not change it. Raises InputError.
    """
    return Module(source)


def imported(module: Module) -> set[str]:
    """The dotted names of the modules that a file imports."""
    names = {alias.name for node in module.nodes(ast.Import) for alias in node.names}
    for node in module.nodes(ast.ImportFrom):
        if node.module:
            names.add(node.module)
    return names
