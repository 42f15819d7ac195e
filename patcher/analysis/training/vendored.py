"""Libraries of which a program has a copy of its own, which is the library for it."""

from __future__ import annotations

from pathlib import PurePath

from ...source.module import Module
from .program import Program


def has_own(program: Program, module: Module, package: str) -> bool:
    """Whether a module's imports of a package mean local files, as a folder beside the script."""
    links = program.links(module)
    return any(package in PurePath(file).parts[-2:-1] for file in links.files) or any(
        name.partition(".")[0] == package for _, name in links.unread
    )


def any_has_own(program: Program, package: str) -> bool:
    """Whether any module of a program has such a copy."""
    return any(has_own(program, module, package) for module in program.modules)
