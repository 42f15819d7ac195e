"""The classes of a program by name, and which of them derive from a model of transformers."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable

from ...source.module import Module
from ..language.names import answered_once
from ..training.program import Program
from ..training.vendored import has_own

Classes = dict[str, list[tuple[Module, ast.ClassDef]]]


@answered_once
def classes_by_name(program: Program) -> Classes:
    """The classes of all modules, each with its module."""
    classes: Classes = defaultdict(list)
    for module in program.modules:
        for owner in module.nodes(ast.ClassDef):
            classes[owner.name].append((module, owner))
    return classes


@answered_once
def library_models(program: Program) -> set[ast.ClassDef]:
    """The classes that derive from a model of the installed transformers, also through others."""
    return heirs_of_library(program, is_model_name)


def heirs_of_library(program: Program, is_base: Callable[[str], bool]) -> set[ast.ClassDef]:
    """The classes that derive from one of the installed transformers, by its dotted name.

    Also through others. Not where a module's transformers is a copy beside the script.
    """
    found: set[ast.ClassDef] = set()
    heirs: dict[str, list[ast.ClassDef]] = defaultdict(list)
    for module in program.modules:
        is_library = "transformers" in module.imported_packages and not has_own(
            program, module, "transformers"
        )
        for owner in module.nodes(ast.ClassDef):
            for base in owner.bases:
                heirs[module.last_name(base)].append(owner)
                if is_library and is_base(module.dotted(base)):
                    found.add(owner)
    pending = list(found)
    while pending:
        for heir in heirs.pop(pending.pop().name, ()):
            if heir not in found:
                found.add(heir)
                pending.append(heir)
    return found


def is_model_name(name: str) -> bool:
    """Whether a dotted name is that of a model of transformers."""
    return name.startswith("transformers.") and (name.endswith("Model") or "For" in name)
