"""Names of libraries that ``from module import *`` brings from a module of the program."""

from __future__ import annotations

import ast

from ..source.module import Module
from ..source.tree import DEFINITIONS, within
from .names import ModuleSet

STAR = "*"
MAX_DEPTH = 6  # modules through which a name may come


def take_star_names(program: ModuleSet) -> None:
    """Tell the modules of a program the aliases that their star imports bring.

    With ``import torch as t`` in ``net``, ``t`` is torch behind ``from net import *``, too.
    """
    found = {
        module: names
        for module in program.modules
        if STAR in module.aliases and (names := star_aliases(program, module))
    }
    for module, names in found.items():
        module.add_aliases(names)


def star_aliases(program: ModuleSet, module: Module, depth: int = 0) -> dict[str, str]:
    """The aliases that a module gets by star imports, but for names that it binds itself."""
    names: dict[str, str] = {}
    for path in program.links(module).stars if depth < MAX_DEPTH else ():
        target = program.modules_by_path.get(path)
        if target is not None and target is not module:
            names |= exported(program, target, depth + 1)
    return {name: full for name, full in names.items() if not binds(module, name)}


def binds(module: Module, name: str) -> bool:
    """Whether a module has another meaning for a name, somewhere at its top level or imported."""
    return (
        name in module.aliases
        or (None, name) in module.stores
        or any(each.name == name for each in module.tree.body if isinstance(each, DEFINITIONS))
    )


def exported(program: ModuleSet, module: Module, depth: int) -> dict[str, str]:
    """The aliases of a module that ``*`` takes: those of its top level, or of its ``__all__``."""
    imports: list[ast.Import | ast.ImportFrom] = [*within(module.tree.body, ast.Import)]
    imports += within(module.tree.body, ast.ImportFrom)
    local = [
        (alias.asname or alias.name.partition(".")[0]) for stmt in imports for alias in stmt.names
    ]
    own = {
        name: module.aliases[name]
        for name in local
        if name in module.aliases and (None, name) not in module.stores
    }
    names = {**star_aliases(program, module, depth), **own}
    public = module.single_assignment(None, "__all__")
    if public is not None or (None, "__all__") in module.stores:
        listed = public.elts if isinstance(public, ast.List | ast.Tuple) else []
        words = {each.value for each in listed if isinstance(each, ast.Constant)}
        return {name: full for name, full in names.items() if name in words}
    return {name: full for name, full in names.items() if name[0] not in "_*"}
