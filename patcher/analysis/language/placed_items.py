"""What a tuple or list of a program holds at a place, also where one expression makes all items.

``train, val = [make(x) for x in ("train", "val")]``, ``dict(zip(names, loaders))["train"]``.
"""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import within
from .dictionaries import keys_of
from .listed import COPIES

MAX_DEPTH = 5  # names and copies between an expression and a display
Item = tuple[ast.expr, str]  # with the condition of the one that is meant: ``x == 'train'``


def item_at(module: Module, value: ast.expr, index: int, depth: int = 0) -> Item | None:
    """What a sequence that is written out in a function has at a place."""
    if depth > MAX_DEPTH:
        return None
    match value:
        case ast.Tuple(elts=elts) | ast.List(elts=elts) if elts:
            plain = not any(isinstance(each, ast.Starred) for each in elts)
            return (elts[index], "") if plain and index < len(elts) else None
        case ast.Call(args=[source], keywords=[]) if module.last_name(value.func) in COPIES[:2]:
            return item_at(module, source, index, depth + 1)
        case (
            ast.ListComp(elt=elt, generators=[part]) | ast.GeneratorExp(elt=elt, generators=[part])
        ):
            return None if part.ifs else _item_of_round(module, elt, part, index)
        case ast.Name():
            bound = module.definition(value, value)
            if isinstance(bound, ast.List) and not bound.elts:
                return _appended_at(module, value, index)
            return None if bound is None else item_at(module, bound, index, depth + 1)
    return None


def _item_of_round(
    module: Module, item: ast.expr, part: ast.comprehension | ast.For, index: int
) -> Item | None:
    """What a loop over constants makes in one of its rounds."""
    keys = keys_of(module, part.iter)
    if not isinstance(part.target, ast.Name) or index >= len(keys):
        return None
    return item, f"{part.target.id} == {keys[index]!r}"


def _appended_at(module: Module, name: ast.Name, index: int) -> Item | None:
    """What is put at a place of a list that begins empty: by one loop, or line by line."""
    puts = [
        call
        for call in within(module.scope_statements(name), ast.Call)
        if isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == name.id
    ]
    if not puts or any(module.last_name(c.func) != "append" or len(c.args) != 1 for c in puts):
        return None
    first = module.statement(puts[0])
    loop = module.parents[first]
    if len(puts) == 1 and isinstance(loop, ast.For):
        return _item_of_round(module, puts[0].args[0], loop, index)
    home = module.body(module.statement(name))
    is_straight = all(module.body(module.statement(call)) is home for call in puts)
    return (puts[index].args[0], "") if is_straight and index < len(puts) else None


def zipped_at(module: Module, value: ast.expr, key: str) -> tuple[ast.expr, int] | None:
    """What gives a dictionary its values in order, and the place of a key: ``dict(zip(a, b))``."""
    match value:
        case ast.Call(args=[ast.Call(func=ast.Name(id="zip"), args=[names, items])]):
            keys = keys_of(module, names)
            if module.last_name(value.func) == "dict" and key in keys:
                return items, keys.index(key)
    return None
