"""Ranks that are no process's: of a matrix, or of the layers that LoRA adds.

A process's rank is 0, -1 or None where nothing else is known; one that is 4 by default is a size.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from ...source.module import Module, cached_per_module
from ...source.tree import parameters
from ..language.passed_arguments import argument_for_parameter, default_value

MAX_DEPTH = 5  # functions and attributes that a size passes through
NONE_KNOWN: Mapping[str, object] = {}


def is_other_rank(
    module: Module, node: ast.expr, defaults: Mapping[str, object] = NONE_KNOWN, depth: int = 0
) -> bool:
    """Whether a name or attribute that sounds of a rank is a size, by what it gets.

    ``defaults`` are those of the command line's options.
    """
    if depth > MAX_DEPTH:
        return False
    if isinstance(node, ast.Constant):
        return is_size(node.value)
    if isinstance(node, ast.Name):
        function = module.function(node)
        if function is None or node.id not in parameters(function):
            return False
        default = default_value(function, node.id)
        if default is not None:
            return isinstance(default, ast.Constant) and is_size(default.value)
        callers = [] if module.graph is None else module.graph.callers(function)
        passed = [
            (where, argument_for_parameter(where, function, call, node.id))
            for where, call in callers
        ]
        return bool(passed) and all(
            value is not None and is_other_rank(where, value, defaults, depth + 1)
            for where, value in passed
        )
    if not isinstance(node, ast.Attribute):
        return False
    if node.attr in defaults:
        return is_size(defaults[node.attr])
    values = [*module.attribute_values.get(node.attr, ()), *field_defaults(module, node.attr)]
    return bool(values) and all(is_other_rank(module, each, defaults, depth + 1) for each in values)


def is_size(value: object) -> bool:
    """Whether a value is a number from 1 on."""
    return type(value) is int and value > 0


def field_defaults(module: Module, name: str) -> list[ast.expr]:
    """The defaults of fields: ``rank: int = 8`` in a class, and ``"--rank", default=8``."""
    return _field_defaults(module).get(name, [])


@cached_per_module
def _field_defaults(module: Module) -> dict[str, list[ast.expr]]:
    found: dict[str, list[ast.expr]] = {}
    for stmt in module.nodes(ast.AnnAssign):
        is_field = isinstance(stmt.target, ast.Name) and module.enclosing_class(stmt) is not None
        if isinstance(stmt.target, ast.Name) and is_field and stmt.value is not None:
            found.setdefault(stmt.target.id, []).append(stmt.value)
    for call in module.calls_to("add_argument"):
        for word in call.keywords:
            if word.arg == "default" and call.args and isinstance(call.args[-1], ast.Constant):
                name = str(call.args[-1].value).lstrip("-").replace("-", "_")
                found.setdefault(name, []).append(word.value)
    return found
