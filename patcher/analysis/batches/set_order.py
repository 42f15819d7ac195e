"""Where code takes the elements of a set in their order, which each process has another of."""

from __future__ import annotations

import ast

from ...source.module import Module
from ..training.possible_values import Place, values_of
from ..training.program import Program

MAX_DEPTH = 8
LISTS = ("list", "tuple")
ORDERS = ("sort", "shuffle")  # in place; a shuffle by a seed that all ranks share needs a sort, too


def place_of_order(program: Program, module: Module, node: ast.expr) -> Place | None:
    """The set whose order an iterable certainly has, where a list or a loop takes it from it.

    Each expression is looked at once: values that are made of each other have many ways between.
    """
    level, seen = [(module, node)], set[ast.expr]()
    for _ in range(MAX_DEPTH):
        below: list[Place] = []
        for where, each in level:
            if each not in seen:
                seen.add(each)
                if is_set(program, where, each):
                    return where, each
                below += taken_from(program, where, each)
        level = below
    return None


def taken_from(program: Program, module: Module, node: ast.expr) -> list[Place]:
    """What an iterable has its elements and their order from."""
    match node:
        case ast.Call(func=ast.Name(id=name), args=[inner]) if name in LISTS:
            return [(module, inner)]
        case ast.BinOp(op=ast.Add()):
            return [(module, node.left), (module, node.right)]
        case ast.Subscript(slice=ast.Slice()):
            return [(module, node.value)]
        case ast.Name() | ast.Attribute() if is_ordered_in_place(module, node):
            return []
        case ast.Name() | ast.Attribute() | ast.Call():
            return [*values_of(program, module, node)]
    return []


def is_set(program: Program, module: Module, node: ast.expr, depth: int = 0) -> bool:
    """Whether an expression is certainly a set that the program makes. Cached."""
    known: dict[ast.expr, bool] = module.program_answers.setdefault(is_set, {})
    if node not in known:
        known[node] = False  # where it depends on itself
        known[node] = depth <= MAX_DEPTH and is_set_by_its_parts(program, module, node, depth)
    return known[node]


def is_set_by_its_parts(program: Program, module: Module, node: ast.expr, depth: int) -> bool:
    """``is_set`` of what a node is made of."""
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
