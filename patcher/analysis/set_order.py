"""Where code takes the elements of a set in their order, which each process has another of."""

from __future__ import annotations

import ast

from ..source.module import Module
from .possible_values import Place, values_of
from .program import Program

MAX_DEPTH = 8
LISTS = ("list", "tuple")
ORDERS = ("sort", "shuffle")  # in place; a shuffle by a seed that all ranks share needs a sort, too


def place_of_order(
    program: Program, module: Module, node: ast.expr, depth: int = 0
) -> Place | None:
    """The set whose order an iterable certainly has, where a list or a loop takes it from it."""
    if depth > MAX_DEPTH:
        return None
    if is_set(program, module, node, depth):
        return module, node
    match node:
        case ast.Call(func=ast.Name(id=name), args=[inner]) if name in LISTS:
            return place_of_order(program, module, inner, depth + 1)
        case ast.BinOp(op=ast.Add()):
            return first_place(program, [(module, node.left), (module, node.right)], depth)
        case ast.Subscript(slice=ast.Slice()):
            return place_of_order(program, module, node.value, depth + 1)
        case ast.Name() | ast.Attribute() if is_ordered_in_place(module, node):
            return None
        case ast.Name() | ast.Attribute() | ast.Call():
            return first_place(program, [*values_of(program, module, node)], depth)
    return None


def first_place(program: Program, values: list[Place], depth: int) -> Place | None:
    places = (place_of_order(program, where, value, depth + 1) for where, value in values)
    return next((place for place in places if place is not None), None)


def is_set(program: Program, module: Module, node: ast.expr, depth: int = 0) -> bool:
    """Whether an expression is certainly a set that the program makes."""
    if depth > MAX_DEPTH:
        return False
    match node:
        case ast.SetComp() | ast.Call():
            return makes_set(node)
        case ast.BinOp(op=ast.BitOr() | ast.BitAnd() | ast.Sub()):
            return is_set(program, module, node.left, depth + 1)
        case ast.Name() | ast.Attribute():
            values = [*values_of(program, module, node)]
            return bool(values) and all(is_set(program, *each, depth + 1) for each in values)
    return False


def makes_set(node: ast.expr) -> bool:
    """``{word for word in words}`` or ``set(words)``."""
    match node:
        case ast.SetComp() | ast.Call(func=ast.Name(id="set")):
            return True
    return False


def is_ordered_in_place(module: Module, node: ast.expr) -> bool:
    """Whether a list is sorted or shuffled under this name."""
    text = module.text(node)
    return any(
        (isinstance(call.func, ast.Attribute) and module.text(call.func.value) == text)
        or any(module.text(value) == text for value in call.args)
        for call in module.calls_to(*ORDERS)
    )
