"""Arguments that a call gets by ``**options``, of a dictionary that is written out."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import within


def values_in_options(module: Module, call: ast.Call, name: str) -> list[ast.expr]:
    """What the dictionaries of ``**options`` have under a key.

    Also what is put there later, ``options["sampler"] = sampler``, and of ``dict(sampler=…)``.
    """
    found: list[ast.expr] = []
    for word in call.keywords:
        if word.arg is not None:
            continue
        for value in dictionaries(module, word.value):
            parts = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
            found += (each for part in parts for key, each in items_of(part) if key == name)
        found += put_later(module, word.value, name)
    return found


def dictionaries(module: Module, options: ast.expr) -> list[ast.expr]:
    """What ``**options`` may be; of ``**self.options`` what the same function binds it to."""
    if isinstance(options, ast.Attribute):
        values = module.attribute_values.get(options.attr, ())
        return [each for each in values if module.function(each) is module.function(options)]
    return module.alternatives(options, options) or [options]


def items_of(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """The keys and values of a dictionary that is written out, as far as they are known."""
    match node:
        case ast.Dict(keys=keys, values=values):
            for key, value in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, value
        case ast.Call(func=ast.Name(id="dict"), keywords=words):
            yield from ((word.arg, word.value) for word in words if word.arg is not None)


def put_later(module: Module, options: ast.expr, name: str) -> Iterator[ast.expr]:
    """The values that statements of the function put under a key of a dictionary."""
    for stmt in within(module.scope_statements(options), ast.Assign):
        for target in stmt.targets:
            match target:
                case ast.Subscript(value=owner, slice=ast.Constant(value=key)) if key == name:
                    if module.text(owner) == module.text(options):
                        yield stmt.value
