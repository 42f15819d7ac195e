"""Where code takes the elements of a set in their order, which each process has another of."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.module import Module
from ..source.tree import parameters, within
from .passed_arguments import argument_for_parameter
from .program import Program

Place = tuple[Module, ast.expr]
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
        case ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id="set")):
            return True
        case ast.BinOp(op=ast.BitOr() | ast.BitAnd() | ast.Sub()):
            return is_set(program, module, node.left, depth + 1)
        case ast.Name() | ast.Attribute():
            values = [*values_of(program, module, node)]
            return bool(values) and all(is_set(program, *each, depth + 1) for each in values)
    return False


def values_of(program: Program, module: Module, node: ast.expr) -> Iterator[Place]:
    """What a name, an attribute or a call of an own function may be, each with its module."""
    if isinstance(node, ast.Call):
        for where, called in program.callees(module, node):
            for result in within(called.body, ast.Return):
                if result.value is not None and where.function(result) is called:
                    yield where, result.value
    elif isinstance(node, ast.Attribute):
        for where in program.modules:
            for value in where.attribute_values.get(node.attr, ()):
                yield where, value
    elif isinstance(node, ast.Name):
        function = module.function(node)
        if values := module.alternatives(node, node):
            yield from ((module, value) for value in values)
        elif function is not None and node.id in parameters(function):
            for where, call in program.callers(function):
                passed = argument_for_parameter(module, function, call, node.id)
                if passed is not None:
                    yield where, passed
        elif (found := program.resolve(module, node)) and isinstance(found[1], ast.expr):
            yield found[0], found[1]


def is_ordered_in_place(module: Module, node: ast.expr) -> bool:
    """Whether a list is sorted or shuffled under this name."""
    text = module.text(node)
    return any(
        (isinstance(call.func, ast.Attribute) and module.text(call.func.value) == text)
        or any(module.text(value) == text for value in call.args)
        for call in module.calls_to(*ORDERS)
    )
