"""What the batch size of a loader is made of."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import everywhere
from ..training.constructed_loaders import Loader
from ..training.possible_values import values_of
from ..training.program import Program

MAX_SOURCES = 12  # expressions to follow from a batch size


def batch_size_sources(program: Program, loader: Loader) -> list[ast.expr]:
    """The batch size and the values of the attributes and variables that it depends on."""
    assert loader.batch_size is not None
    sources: list[ast.expr] = []
    pending: list[tuple[Module, ast.expr]] = [(loader.module, loader.batch_size)]
    while pending and len(sources) < MAX_SOURCES:
        module, value = pending.pop()
        if value in sources:
            continue
        sources.append(value)
        for node in everywhere(value, ast.Attribute):
            pending += [
                (m, v) for m in program.modules for v in m.attribute_values.get(node.attr, [])
            ]
        for name in everywhere(value, ast.Name):
            definition = module.definition(name, value)
            passed = values_of(program, module, name) if definition is None else ()
            pending += [(module, definition)] if definition is not None else [*passed]
    return sources


def involves(values: list[ast.expr], name: str, *operators: type[ast.operator]) -> bool:
    """Whether one of the operators is applied with a right side that such a name is part of."""
    return any(
        isinstance(node.op, operators) and any(name in word for word in names_in([node.right]))
        for value in values
        for node in everywhere(value, ast.BinOp)
    )


def names_in(values: list[ast.expr]) -> set[str]:
    """Names and attributes in some expressions."""
    attributes = {node.attr for value in values for node in everywhere(value, ast.Attribute)}
    return attributes | {node.id for value in values for node in everywhere(value, ast.Name)}
