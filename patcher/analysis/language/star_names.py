"""Names of libraries that imports bring from a module of the program."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import DEFINITIONS, within
from .names import ModuleSet, is_library

MAX_DEPTH = 6  # modules through which a name may come


def take_names_of_libraries(program: ModuleSet) -> None:
    """Tell the modules of a program the aliases that imports from other modules bring.

    With ``import torch as t`` in ``net``, ``t`` is torch behind ``from net import *`` and
    ``from net import t``, too.
    """
    found = {
        module: names
        for module in program.modules
        if (names := library_names(program, module) | star_aliases(program, module))
    }
    for module, names in found.items():
        module.add_aliases(names)


def library_names(program: ModuleSet, module: Module) -> dict[str, str]:
    """The aliases of names of libraries that a module imports from modules of the program."""
    names: dict[str, str] = {}
    for name, (path, original) in program.links(module).names.items():
        target = program.modules_by_path.get(path)
        if target is None or target is module or (None, name) in module.stores:
            continue
        if full := library_name(program, target, original):
            names[name] = full
    return names


def library_name(program: ModuleSet, module: Module, name: str, depth: int = 0) -> str:
    """What a module imports from a library under a name, maybe through other modules; or ""."""
    links = program.links(module)
    if name in links.names and depth < MAX_DEPTH:
        path, original = links.names[name]
        target = program.modules_by_path.get(path)
        if target is not None and target is not module:
            return library_name(program, target, original, depth + 1)
    full = own_aliases(module).get(name, "")
    return full if is_library(full) and name not in links.modules else ""


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
    names = {**star_aliases(program, module, depth), **own_aliases(module)}
    public = module.single_assignment(None, "__all__")
    if public is not None or (None, "__all__") in module.stores:
        listed = public.elts if isinstance(public, ast.List | ast.Tuple) else []
        words = {each.value for each in listed if isinstance(each, ast.Constant)}
        return {name: full for name, full in names.items() if name in words}
    return {name: full for name, full in names.items() if name[0] not in "_*"}


def own_aliases(module: Module) -> dict[str, str]:
    """The aliases of a module's top level that it does not bind to anything else there."""
    imports: list[ast.Import | ast.ImportFrom] = [*within(module.tree.body, ast.Import)]
    imports += within(module.tree.body, ast.ImportFrom)
    local = [
        (alias.asname or alias.name.partition(".")[0]) for stmt in imports for alias in stmt.names
    ]
    return {
        name: module.aliases[name]
        for name in local
        if name in module.aliases and (None, name) not in module.stores
    }
