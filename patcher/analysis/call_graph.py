"""What a call may run: the program's functions that it reaches, by name."""

from __future__ import annotations

import ast

from ..source.module import Module
from ..source.tree import Function, within
from .program import Program


def called(program: Program, names: set[str]) -> set[Function]:
    """Functions of the program of these names, constructors of such classes, and all they call."""
    by_name: dict[str, list[tuple[Module, Function]]] = {}
    for module in program.modules:
        for function in module.all_functions:
            owner = module.parents[function]
            made = isinstance(owner, ast.ClassDef) and function.name == "__init__"
            name = owner.name if isinstance(owner, ast.ClassDef) and made else function.name
            by_name.setdefault(name, []).append((module, function))
    found: set[Function] = set()
    pending = [item for name in names for item in by_name.get(name, [])]
    while pending:
        module, function = pending.pop()
        if function not in found:
            found.add(function)
            for call in within(function.body, ast.Call):
                pending += by_name.get(module.last_name(call.func), [])
    return found
