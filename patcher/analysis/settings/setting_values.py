"""The value of an expression of a script with the options of one command."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from ...source.module import Module
from ...source.tree import is_inside, keyword
from ..training.program import Program
from .flag_roles import sources_of

UNKNOWN: Final = object()
MOST_STEPS = 12
COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
ON_CARDS = ("torch.cuda.is_available",)
"""What is true where a step's memory on a card is asked for."""


def option_value(program: Program, dest: str, option_values: Mapping[str, str]) -> object:
    """The value of the option that sets an attribute, from the command or its default."""
    option = program.options[dest]
    if option_values.get(dest):
        return _typed(option_values[dest])
    if option.is_switch:
        return False
    return UNKNOWN if option.default is None else option.default


def setting(
    program: Program,
    module: Module,
    node: ast.expr,
    option_values: Mapping[str, str],
    depth: int = 0,
) -> object:
    """The value of an expression, or UNKNOWN; a name of torch is its dotted text."""

    def value(inner: ast.expr) -> object:
        return setting(program, module, inner, option_values, depth + 1)

    if depth > MOST_STEPS:
        return UNKNOWN
    match node:
        case ast.Constant(value=constant):
            return constant
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            found = value(inner)
            return UNKNOWN if found is UNKNOWN else not found
        case ast.BoolOp(op=op, values=parts):
            return _either([*map(value, parts)], until=isinstance(op, ast.Or))
        case ast.IfExp(test=test, body=then, orelse=otherwise):
            chosen = value(test)
            return UNKNOWN if chosen is UNKNOWN else value(then if chosen else otherwise)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARISONS:
            return _compared(op, value(left), value(right))
        case ast.Call(func=func) if module.dotted(func) in ON_CARDS:
            return True
        case ast.Attribute(attr=name) if name in program.options:
            return option_value(program, name, option_values)
        case ast.Attribute(attr="type", value=inner) if "device" in module.text(inner):
            return "cuda"
        case ast.Attribute() if (dotted := module.dotted(node)).startswith("torch."):
            return dotted
        case ast.Attribute() | ast.Name():
            return _one_value(
                setting(program, where, source, option_values, depth + 1)
                for where, source in sources_of(program, module, node)
            )
    return UNKNOWN


def is_reached(
    program: Program, module: Module, node: ast.expr, option_values: Mapping[str, str]
) -> object:
    """Whether the tests around a node, and its own ``enabled=``, hold: True, False or UNKNOWN."""
    found = []
    for up in module.ancestors(node):
        if isinstance(up, ast.If) and not is_inside(node, up.test):
            held = setting(program, module, up.test, option_values)
            inverse = not any(is_inside(node, stmt) for stmt in up.body)
            found.append(held if held is UNKNOWN else bool(held) is not inverse)
        elif isinstance(up, ast.FunctionDef | ast.AsyncFunctionDef):
            break
    enabled = keyword(node, "enabled") if isinstance(node, ast.Call) else None
    if enabled is not None:
        value = setting(program, module, enabled.value, option_values)
        found.append(value if value is UNKNOWN else bool(value))
    return _either(found, until=False) if found else True


def _one_value(values: Iterator[object]) -> object:
    """The value that all are, or UNKNOWN; none is worked out behind the first that settles it."""
    first = next(values, UNKNOWN)
    if first is UNKNOWN or any(each is UNKNOWN or each != first for each in values):
        return UNKNOWN
    return first


def _either(values: list[object], *, until: bool) -> object:
    """What ``or`` gives (`until` true) or ``and``: one known value may decide."""
    for each in values:
        if each is not UNKNOWN and bool(each) is until:
            return each
    return UNKNOWN if any(each is UNKNOWN for each in values) else values[-1]


def _compared(op: ast.cmpop, left: object, right: object) -> object:
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    try:
        return COMPARISONS[type(op)](left, right)
    except TypeError:
        return UNKNOWN


def _typed(text: str) -> object:
    """The number or the truth value that the text of an argument is, else the text."""
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
