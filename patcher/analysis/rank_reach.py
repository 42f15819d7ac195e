"""Which processes reach a statement: rank tests evaluated for three roles.

A test such as ``args.local_rank in [-1, 0] and args.do_eval`` has no value before the run, but for
a given role its rank part has: this is partial evaluation with three truth values. From it follow
the roles that can reach a statement, through enclosing tests, early exits and call sites.
"""

from __future__ import annotations

import ast
import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any

from ..source.module import Module, cached_per_module
from ..source.tree import Function, number_of, place, within
from .program import Program


class Role(Enum):
    """A kind of process."""

    SINGLE = "the only process"
    MAIN = "rank 0"
    OTHER = "the other ranks"


ROLES = tuple(Role)
PLACE = {role: index for index, role in enumerate(ROLES)}
EVERYONE = frozenset(ROLES)
RANKS = frozenset({Role.MAIN, Role.OTHER})

UNKNOWN: Any = type("Unknown", (), {"__repr__": lambda _: "UNKNOWN"})()
Values = tuple[object, ...]  # one for each role, in the order of ROLES
Reach = tuple[int, int, frozenset[Role]]  # from which node to which, and who comes there
NOTHING: Values = (UNKNOWN, UNKNOWN, UNKNOWN)

# Spellings of a process's number. Outside a process group scripts keep -1 in them.
RANK_NAMES = {"local_rank", "global_rank", "rank", "node_rank", "LOCAL_RANK", "RANK"}
RANK = {Role.SINGLE: -1, Role.MAIN: 0, Role.OTHER: 1}
WORLD = {Role.SINGLE: 1, Role.MAIN: 2, Role.OTHER: 2}
RANK_OF_EACH, WORLD_OF_EACH = tuple(RANK.values()), tuple(WORLD.values())
VARIABLES = RANK_NAMES | {"WORLD_SIZE"}
# What torch.distributed answers for each role.
QUERIES: dict[str, Values] = {
    "get_rank": (0, 0, 1),
    "get_node_local_rank": (0, 0, 1),
    "get_world_size": WORLD_OF_EACH,
    "is_initialized": (False, True, True),
}
COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, container: item in container,
    ast.NotIn: lambda item, container: item not in container,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


def value(module: Module, node: ast.expr, role: Role) -> Any:
    """What ``node`` is for a process of this role, or UNKNOWN."""
    return values(module, node)[PLACE[role]]


def values(module: Module, node: ast.expr) -> Values:
    """What ``node`` is for each role, from one walk: few expressions have a rank in them."""
    known = module.values.get(node)
    if known is None:
        known = module.values[node] = _values(module, node, 0)
    return known


def _values(module: Module, node: ast.expr, depth: int) -> Values:
    evaluate = EVALUATE.get(type(node))
    return NOTHING if evaluate is None or depth > 8 else evaluate(module, node, depth)


def _constant(module: Module, node: ast.Constant, depth: int) -> Values:
    return (node.value,) * 3


def _unary(module: Module, node: ast.UnaryOp, depth: int) -> Values:
    inner = _values(module, node.operand, depth + 1)
    return NOTHING if inner is NOTHING else tuple([_signed(node.op, item) for item in inner])


def _signed(op: ast.unaryop, item: Any) -> Any:
    if isinstance(op, ast.Not):
        return UNKNOWN if item is UNKNOWN else not item
    return -item if isinstance(op, ast.USub) and isinstance(item, int | float) else UNKNOWN


def _display(module: Module, node: ast.List | ast.Tuple | ast.Set, depth: int) -> Values:
    parts = [_values(module, item, depth + 1) for item in node.elts]
    columns = zip(*parts, strict=True) if parts else [(), (), ()]
    return tuple([UNKNOWN if UNKNOWN in items else list(items) for items in columns])


def _connective(module: Module, node: ast.BoolOp, depth: int) -> Values:
    parts = [_values(module, item, depth + 1) for item in node.values]
    if all(part is NOTHING for part in parts):
        return NOTHING
    stops = isinstance(node.op, ast.Or)  # the truth value that decides it
    return tuple([_joined(items, stops) for items in zip(*parts, strict=True)])


def _joined(items: tuple[object, ...], stops: bool) -> Any:
    known = [bool(item) for item in items if item is not UNKNOWN]
    if stops in known:
        return stops
    return UNKNOWN if len(known) < len(items) else not stops


def _comparison(module: Module, node: ast.Compare, depth: int) -> Values:
    if len(node.ops) > 1:
        return NOTHING
    left, op, right = node.left, node.ops[0], node.comparators[0]
    if isinstance(left, ast.Constant) and left.value in VARIABLES:
        there = isinstance(op, ast.In)  # "LOCAL_RANK" in os.environ
        return not there, there, there
    first = _values(module, left, depth + 1)
    if first is NOTHING:
        return NOTHING
    second = _values(module, right, depth + 1)
    if second is NOTHING:
        return NOTHING
    compare = COMPARE[type(op)]
    return tuple([_compared(compare, *sides) for sides in zip(first, second, strict=True)])


def _compared(compare: Callable[[Any, Any], Any], first: Any, second: Any) -> Any:
    if first is UNKNOWN or second is UNKNOWN:
        return UNKNOWN
    try:
        return compare(first, second)
    except TypeError:
        return UNKNOWN


def _choice(module: Module, node: ast.IfExp, depth: int) -> Values:
    tests = _values(module, node.test, depth + 1)
    if tests is NOTHING:
        return NOTHING
    body, orelse = (_values(module, way, depth + 1) for way in (node.body, node.orelse))
    return tuple(
        [
            UNKNOWN if test is UNKNOWN else first if test else second
            for test, first, second in zip(tests, body, orelse, strict=True)
        ]
    )


def _name(module: Module, node: ast.Name, depth: int) -> Values:
    if node.id in RANK_NAMES and (module.function(node), node.id) not in module.stores:
        return RANK_OF_EACH  # a parameter; a variable may be something else's rank
    once = module.assigned_once(module.function(node), node.id)
    found = NOTHING if once is None else _values(module, once, depth + 1)
    if node.id == "n_gpu":
        return found[0], 1, 1  # one process of a group, one card
    if node.id == "world_size":
        pairs = zip(found, WORLD_OF_EACH, strict=True)
        return tuple([usual if item is UNKNOWN else item for item, usual in pairs])
    return found


def _attribute(module: Module, node: ast.Attribute, depth: int) -> Values:
    if node.attr in ("global_rank", "rank"):
        return _asked_rank(module, node, depth)
    if node.attr in RANK_NAMES:
        return RANK_OF_EACH
    if node.attr == "world_size":
        return WORLD_OF_EACH
    return (UNKNOWN, 1, 1) if node.attr == "n_gpu" else NOTHING


def _asked_rank(module: Module, node: ast.Attribute, depth: int) -> Values:
    """``args.global_rank``: 0 for a lone process too, where it is what ``get_rank()`` told."""
    told = module.attribute_values.get(node.attr, [])
    found = _values(module, told[0], depth + 1) if len(told) == 1 else NOTHING
    pairs = zip(found, RANK_OF_EACH, strict=True)
    return tuple([usual if item is UNKNOWN else item for item, usual in pairs])


def _variable(name: object) -> Values:
    """What a launcher has put into an environment variable."""
    if name == "WORLD_SIZE":
        return WORLD_OF_EACH
    return RANK_OF_EACH if name in RANK_NAMES else NOTHING


def _subscript(module: Module, node: ast.Subscript, depth: int) -> Values:
    return _variable(node.slice.value) if isinstance(node.slice, ast.Constant) else NOTHING


def _call(module: Module, node: ast.Call, depth: int) -> Values:
    name = module.last_name(node.func)
    if name in QUERIES:
        return QUERIES[name]
    if name == "int" and len(node.args) == 1:
        return _values(module, node.args[0], depth + 1)
    if name in ("get", "getenv") and node.args and isinstance(node.args[0], ast.Constant):
        found = _variable(node.args[0].value)
        if found is not NOTHING:
            return found
    function = module.functions.get(name)
    if function is not None and isinstance(node.func, ast.Name):
        last = function.body[-1]
        if isinstance(last, ast.Return) and last.value and not within(function.body, ast.If):
            return _values(module, last.value, depth + 1)
    return NOTHING


EVALUATE: dict[type[ast.expr], Callable[[Module, Any, int], Values]] = {
    ast.Constant: _constant,
    ast.UnaryOp: _unary,
    ast.List: _display,
    ast.Tuple: _display,
    ast.Set: _display,
    ast.BoolOp: _connective,
    ast.Compare: _comparison,
    ast.IfExp: _choice,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Call: _call,
}


def differs(module: Module, test: ast.expr) -> bool:
    """Whether a test separates rank 0 from the other ranks, or ranks from a lone process."""
    alone, main, other = values(module, test)
    return not alone is main is other and len({str(alone), str(main), str(other)}) > 1


def is_rank_test(module: Module, test: ast.expr) -> bool:
    """Whether a test's value is known for every role and not the same for all."""
    results = values(module, test)
    return UNKNOWN not in results and len({bool(result) for result in results}) > 1


def leaves(body: list[ast.stmt]) -> bool:
    """Whether a block never runs on to the statement behind it."""
    return bool(body) and isinstance(body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)


def reached_in_function(module: Module, node: ast.AST) -> frozenset[Role]:
    """Roles that may reach ``node`` once its function is entered."""
    roles = EVERYONE
    number = number_of(node)
    for start, end, some in _reaches(module).get(module.function(node), ()):
        if start <= number < end:
            roles &= some
    return roles


@cached_per_module
def _reaches(module: Module) -> dict[Function | None, list[Reach]]:
    """What tests say of the statements under them and behind their exits, by function."""
    found: dict[Function | None, list[Reach]] = defaultdict(list)
    tests: list[ast.If | ast.IfExp | ast.While] = [*module.nodes(ast.If)]
    tests += [*module.nodes(ast.IfExp), *module.nodes(ast.While)]
    for test in tests:
        if values(module, test.test) is not NOTHING:
            found[module.function(test)] += _reaches_of(module, test)
    return found


def _reaches_of(module: Module, test: ast.If | ast.IfExp | ast.While) -> Iterator[Reach]:
    results = dict(zip(ROLES, values(module, test.test), strict=True))
    for branch, wanted in ((test.body, True), (test.orelse, False)):
        nodes = branch if isinstance(branch, list) else [branch]
        if nodes:
            some = frozenset(r for r, result in results.items() if result in _truths(wanted))
            yield *_extent(nodes), some
    if isinstance(test, ast.If) and (leaves(test.body) or leaves(test.orelse)):
        some = frozenset(
            role
            for role, result in results.items()
            if result is UNKNOWN or not leaves(test.body if result else test.orelse)
        )
        (_, start), (_, end) = _extent([test]), _extent(module.body(test))
        yield start, end, some


def _extent(nodes: Sequence[ast.AST]) -> tuple[int, int]:
    """Numbers of the first node and of what stands behind the last."""
    table, last = place(nodes[-1])
    return number_of(nodes[0]), table.ends[last]


def _truths(wanted: bool) -> list[Any]:
    return [UNKNOWN, *([True, 1] if wanted else [False, 0, None])]


def reached(program: Program, module: Module, node: ast.AST) -> frozenset[Role]:
    """Roles that may reach ``node`` in the whole program."""
    roles = reached_in_function(module, node)
    function = module.function(node)
    if function is None:
        return roles
    if function not in program.entering:
        program.entering[function] = _entering(program, function, frozenset({function}))
    return roles & program.entering[function]


def _entering(program: Program, function: Function, seen: frozenset[Function]) -> frozenset[Role]:
    """Roles that may enter a function: all, where nobody in the program calls it by name."""
    roles: frozenset[Role] = frozenset()
    called = False
    for module, call in program.callers(function):
        caller = module.function(call)
        if caller is function:
            continue
        called = True
        some = reached_in_function(module, call)
        if caller is not None and caller not in seen:
            some &= _entering(program, caller, seen | {caller})
        roles |= some
    return roles if called else EVERYONE


def gates(module: Module, node: ast.AST) -> list[ast.If]:
    """The tests around ``node`` in its function that keep a rank, or all, away from it."""
    found: list[ast.If] = []
    child: ast.AST = node
    for parent in module.ancestors(node):
        if isinstance(parent, Function):
            break
        if isinstance(parent, ast.If) and child is not parent.test:
            wanted = any(item is child for item in parent.body)
            if any(value(module, parent.test, r) not in _truths(wanted) for r in RANKS):
                found.append(parent)
        child = parent
    return found
