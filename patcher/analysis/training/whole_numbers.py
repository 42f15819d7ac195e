"""Which collections certainly hold whole numbers alone, whose hash is the same in each process."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import bound_names
from .possible_values import values_of
from .program import Program
from .words import ADD_ALL, ADD_ONE, COLLECTIONS, is_empty

MAX_DEPTH = 6
MAKE_NUMBERS = {"int", "len", "ord", "round"}


def holds_numbers(program: Program, module: Module, node: ast.expr, depth: int = 0) -> bool:
    """Whether a loop over an expression certainly goes over whole numbers."""
    if depth > MAX_DEPTH:
        return False
    match node:
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
            return is_number(program, module, node.elt, depth + 1)
        case (
            ast.Call(func=ast.Name(id="range"))
            | ast.Call(func=ast.Name(id="map"), args=[ast.Name(id="int"), _])
        ):
            return True
        case ast.Call(func=ast.Name(id=name), args=[inner]) if name in COLLECTIONS:
            return holds_numbers(program, module, inner, depth + 1)
        case ast.Name() | ast.Attribute():
            return name_holds_numbers(program, module, node, depth)
    return False


def name_holds_numbers(program: Program, module: Module, node: ast.expr, depth: int) -> bool:
    """A name whose values hold numbers, or that is filled with nothing else."""
    values = [*values_of(program, module, node)]
    filled = [value for value in values if not is_empty(value[1])]
    text = module.text(node)
    added = [
        (call.func.attr, value)
        for call in module.calls_to(*ADD_ONE, *ADD_ALL)
        if isinstance(call.func, ast.Attribute) and module.text(call.func.value) == text
        for value in call.args
    ]
    return (
        bool(values and (filled or added))
        and all(holds_numbers(program, *value, depth + 1) for value in filled)
        and all(
            (is_number if how in ADD_ONE else holds_numbers)(program, module, value, depth + 1)
            for how, value in added
        )
        and not any(module.text(each.target) == text for each in module.nodes(ast.AugAssign))
    )


def is_number(program: Program, module: Module, node: ast.expr, depth: int = 0) -> bool:
    """Whether an expression is certainly a whole number."""
    match node:
        case ast.Constant():
            return isinstance(node.value, int)
        case ast.Call(func=ast.Name(id=name)):
            return name in MAKE_NUMBERS
        case ast.Name():
            return depth <= MAX_DEPTH and is_bound_to_number(program, module, node, depth)
    return False


def is_bound_to_number(program: Program, module: Module, name: ast.Name, depth: int) -> bool:
    """Whether the last statement above that binds a name, on every way, gives it a number."""
    for up in (name, *module.ancestors(name)):
        for part in getattr(up, "generators", ()):
            if isinstance(part.target, ast.Name) and part.target.id == name.id:
                return holds_numbers(program, module, part.iter, depth + 1)
        if not isinstance(up, ast.stmt):
            continue
        block = module.body(up)
        for stmt in reversed(block[: block.index(up)]):
            match stmt:
                case ast.Assign(targets=[ast.Name(id=name.id)], value=value):
                    return is_number(program, module, value, depth + 1)
                case ast.Assign(targets=[ast.Tuple(elts=parts)], value=value) if any(
                    isinstance(part, ast.Name) and part.id == name.id for part in parts
                ):
                    return holds_numbers(program, module, value, depth + 1)
            if name.id in bound_names(stmt):
                return False
        around = module.parents[up]
        if isinstance(around, ast.For) and name.id in bound_names(around.target):
            is_whole = isinstance(around.target, ast.Name)
            return is_whole and holds_numbers(program, module, around.iter, depth + 1)
    return False
