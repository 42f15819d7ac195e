"""Whether a script comes to where it starts its ranks, by its options and what it counts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

from ...source.module import Module
from ...source.tree import everywhere
from ..training.possible_values import Place
from ..training.program import Program
from .counted_ranks import counts_cards, is_count
from .rank_values import COMPARE
from .started_workers import MAX_DEPTH, NotLaunchableError, StartedWorker

UNKNOWN = object()
# The processes of a machine, and whether it has cards, by keys that are no option's.
COUNT, HAS_CARDS = "", "cuda"
MANY: dict[str, object] = {COUNT: 2, HAS_CARDS: True}
ONE: dict[str, object] = {COUNT: 1, HAS_CARDS: True}
NONE: dict[str, object] = {COUNT: 1, HAS_CARDS: False}


def tests_on_the_way(
    program: Program, started: StartedWorker
) -> Iterator[tuple[Module, ast.expr, bool]]:
    """The tests around the start of the ranks, with the answer that leads there."""
    child: ast.AST = started.stmt
    module = started.module
    for up in module.ancestors(started.stmt):
        if isinstance(up, ast.If) and child is not up.test and not is_main_guard(up.test):
            yield module, up.test, any(child is each for each in up.body)
        elif isinstance(up, ast.For | ast.While | ast.Try | ast.Match):
            raise NotLaunchableError("it stands in a loop, a try or a match")
        child = up


def is_main_guard(test: ast.expr) -> bool:
    return any(name.id == "__name__" for name in everywhere(test, ast.Name))


def truth(
    program: Program,
    started: StartedWorker,
    module: Module,
    test: ast.expr,
    values: dict[str, object],
) -> bool | None:
    """The answer of a test with these ``values``, and other options as by default."""
    answer = value_of(program, started, module, test, values)
    return None if answer is UNKNOWN else bool(answer)


def value_of(
    program: Program,
    started: StartedWorker,
    module: Module,
    node: ast.expr,
    values: dict[str, object],
    depth: int = 0,
) -> object:
    """The value of an expression, as `truth` says; UNKNOWN where it cannot be told."""

    def of(inner: ast.expr) -> object:
        return value_of(program, started, module, inner, values, depth + 1)

    match node:
        case ast.Constant():
            return node.value
        case ast.UnaryOp(op=ast.Not()):
            inner = of(node.operand)
            return UNKNOWN if inner is UNKNOWN else not inner
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
            return -value
        case ast.BoolOp():
            parts = [of(each) for each in node.values]
            decisive = isinstance(node.op, ast.Or)
            if any(each is not UNKNOWN and bool(each) is decisive for each in parts):
                return decisive
            return UNKNOWN if UNKNOWN in parts else not decisive
        case ast.Compare():
            sides = [of(each) for each in (node.left, *node.comparators)]
            if UNKNOWN in sides:
                return UNKNOWN
            pairs = zip(node.ops, pairwise(sides), strict=True)
            return all(compared(op, *pair) for op, pair in pairs)
        case ast.Call() if counts_cards(module, node):
            return values[COUNT]
        case ast.Call() if module.dotted(node.func) == "torch.cuda.is_available":
            return values[HAS_CARDS]
        case ast.Name() | ast.Attribute() if depth < MAX_DEPTH:
            if isinstance(node, ast.Attribute) and node.attr in values:
                return values[node.attr]
            if is_count(program, started, module, node):
                return values[COUNT]
            return bound_value(program, started, module, node, values, depth)
    return UNKNOWN


def compared(op: ast.cmpop, one: object, other: object) -> bool:
    """The answer of one comparison; False for what has no order."""
    try:
        return bool(COMPARE[type(op)](one, other))
    except TypeError:
        return False


def bound_value(
    program: Program,
    started: StartedWorker,
    module: Module,
    node: ast.Name | ast.Attribute,
    values: dict[str, object],
    depth: int,
) -> object:
    """The value of a name or an attribute by what is assigned to it, or by the option's default."""
    places: list[Place] = []
    if isinstance(node, ast.Attribute):
        places = [(m, v) for m in program.modules for v in m.attribute_values.get(node.attr, ())]
    elif not places:
        places = [(module, each) for each in module.alternatives(node, node)]
    found = [value_of(program, started, where, value, values, depth + 1) for where, value in places]
    if found and all(each == found[0] and each is not UNKNOWN for each in found):
        return found[0]
    if places or not isinstance(node, ast.Attribute) or node.attr not in program.options:
        return UNKNOWN
    option = program.options[node.attr]
    if option.default is None and option.is_switch:
        return False
    return option.default
