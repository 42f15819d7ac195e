"""Which processes reach a statement: rank tests evaluated for three roles.

A test such as ``args.local_rank in [-1, 0] and args.do_eval`` has no value before the run, but for
a given role its rank part has: this is partial evaluation with three truth values. From it follow
the roles that can reach a statement, through enclosing tests, early exits and call sites.
"""

from __future__ import annotations

import ast
import enum
import operator
from collections.abc import Callable

from .facts import Unit
from .module import Module
from .syntax import Function, within

TYPE_CHECKING = False  # typing takes long to import
if TYPE_CHECKING:
    from typing import Any


class Role(enum.Enum):
    """A kind of process."""

    SINGLE = "the only process"
    MAIN = "rank 0"
    OTHER = "the other ranks"

    __hash__ = object.__hash__  # Enum's own is Python, and asked a thousand times


ROLES = tuple(Role)
EVERYONE = frozenset(Role)
RANKS = frozenset({Role.MAIN, Role.OTHER})

UNKNOWN: Any = type("Unknown", (), {"__repr__": lambda _: "UNKNOWN"})()

# Spellings of a process's number. Outside a process group scripts keep -1 in them.
RANK_NAMES = {"local_rank", "global_rank", "rank", "node_rank", "LOCAL_RANK", "RANK"}
RANK = {Role.SINGLE: -1, Role.MAIN: 0, Role.OTHER: 1}
WORLD = {Role.SINGLE: 1, Role.MAIN: 2, Role.OTHER: 2}
# What torch.distributed answers for a role.
QUERIES: dict[str, Callable[[Role], Any]] = {
    "get_rank": lambda role: max(0, RANK[role]),
    "get_node_local_rank": lambda role: max(0, RANK[role]),
    "get_world_size": lambda role: WORLD[role],
    "is_initialized": lambda role: role is not Role.SINGLE,
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


def value(module: Module, node: ast.expr, role: Role, depth: int = 0) -> Any:
    """What ``node`` is for a process of this role, or UNKNOWN."""
    if depth > 8:
        return UNKNOWN
    if depth:
        return _value(module, node, role, depth)
    key = node, role
    if key not in module.values:
        module.values[key] = _value(module, node, role, depth)
    return module.values[key]


def _value(module: Module, node: ast.expr, role: Role, depth: int) -> Any:
    evaluate = EVALUATE.get(type(node))
    return UNKNOWN if evaluate is None else evaluate(module, node, role, depth)


def _constant(module: Module, node: ast.Constant, role: Role, depth: int) -> Any:
    return node.value


def _unary(module: Module, node: ast.UnaryOp, role: Role, depth: int) -> Any:
    inner = value(module, node.operand, role, depth + 1)
    if isinstance(node.op, ast.Not):
        return UNKNOWN if inner is UNKNOWN else not inner
    return -inner if isinstance(node.op, ast.USub) and isinstance(inner, int | float) else UNKNOWN


def _display(module: Module, node: ast.List | ast.Tuple | ast.Set, role: Role, depth: int) -> Any:
    items = [value(module, item, role, depth + 1) for item in node.elts]
    return UNKNOWN if any(item is UNKNOWN for item in items) else items


def _connective(module: Module, node: ast.BoolOp, role: Role, depth: int) -> Any:
    stops = isinstance(node.op, ast.Or)  # the truth value that decides it
    unknown = False
    for item in node.values:
        result = value(module, item, role, depth + 1)
        if result is UNKNOWN:
            unknown = True
        elif bool(result) is stops:
            return stops
    return UNKNOWN if unknown else not stops


def _comparison(module: Module, node: ast.Compare, role: Role, depth: int) -> Any:
    if len(node.ops) > 1:
        return UNKNOWN
    left, op, right = node.left, node.ops[0], node.comparators[0]
    if isinstance(left, ast.Constant) and left.value in RANK_NAMES | {"WORLD_SIZE"}:
        return (role is not Role.SINGLE) is isinstance(op, ast.In)  # "LOCAL_RANK" in os.environ
    first, second = (value(module, side, role, depth + 1) for side in (left, right))
    if first is UNKNOWN or second is UNKNOWN:
        return UNKNOWN
    try:
        return COMPARE[type(op)](first, second)
    except TypeError:
        return UNKNOWN


def _choice(module: Module, node: ast.IfExp, role: Role, depth: int) -> Any:
    test = value(module, node.test, role, depth + 1)
    if test is UNKNOWN:
        return UNKNOWN
    return value(module, node.body if test else node.orelse, role, depth + 1)


def _name(module: Module, node: ast.Name, role: Role, depth: int) -> Any:
    if node.id in RANK_NAMES and (module.function(node), node.id) not in module.stores:
        return RANK[role]  # a parameter; a variable may be something else's rank
    if node.id == "world_size":
        found = _variable(module, node, role, depth)
        return WORLD[role] if found is UNKNOWN else found
    if node.id == "n_gpu" and role is not Role.SINGLE:
        return 1  # one process, one card
    return _variable(module, node, role, depth)


def _variable(module: Module, node: ast.Name, role: Role, depth: int) -> Any:
    """A name bound once in its function, so that its value is its definition's."""
    once = module.assigned_once(module.function(node), node.id)
    return UNKNOWN if once is None else value(module, once, role, depth + 1)


def _attribute(module: Module, node: ast.Attribute, role: Role, depth: int) -> Any:
    if node.attr in ("global_rank", "rank"):
        return _asked_rank(module, node, role, depth)
    if node.attr in RANK_NAMES:
        return RANK[role]
    if node.attr == "world_size":
        return WORLD[role]
    return 1 if node.attr == "n_gpu" and role is not Role.SINGLE else UNKNOWN


def _asked_rank(module: Module, node: ast.Attribute, role: Role, depth: int) -> Any:
    """``args.global_rank``: 0 for a lone process too, where it is what ``get_rank()`` told."""
    values = module.attribute_values.get(node.attr, [])
    found = value(module, values[0], role, depth + 1) if len(values) == 1 else UNKNOWN
    return RANK[role] if found is UNKNOWN else found


def _subscript(module: Module, node: ast.Subscript, role: Role, depth: int) -> Any:
    key = node.slice.value if isinstance(node.slice, ast.Constant) else None
    if key == "WORLD_SIZE":
        return WORLD[role]
    return RANK[role] if key in RANK_NAMES else UNKNOWN


def _call(module: Module, node: ast.Call, role: Role, depth: int) -> Any:
    name = module.last_name(node.func)
    if name in QUERIES:
        return QUERIES[name](role)
    if name == "int" and len(node.args) == 1:
        return value(module, node.args[0], role, depth + 1)
    if name in ("get", "getenv") and node.args and isinstance(node.args[0], ast.Constant):
        key = node.args[0].value
        if key == "WORLD_SIZE":
            return WORLD[role]
        if key in RANK_NAMES:
            return RANK[role]
    function = module.functions.get(name)
    if function is not None and isinstance(node.func, ast.Name):
        last = function.body[-1]
        if isinstance(last, ast.Return) and last.value and not within(function.body, ast.If):
            return value(module, last.value, role, depth + 1)
    return UNKNOWN


EVALUATE: dict[type[ast.expr], Callable[[Module, Any, Role, int], Any]] = {
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
    return len({str(value(module, test, role)) for role in ROLES}) > 1


def is_rank_test(module: Module, test: ast.expr) -> bool:
    """Whether a test's value is known for every role and not the same for all."""
    results = [value(module, test, role) for role in ROLES]
    return UNKNOWN not in results and len({bool(result) for result in results}) > 1


def leaves(body: list[ast.stmt]) -> bool:
    """Whether a block never runs on to the statement behind it."""
    return bool(body) and isinstance(body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)


def reached_in_function(module: Module, node: ast.AST) -> frozenset[Role]:
    """Roles that may reach ``node`` once its function is entered."""
    known: dict[ast.AST, frozenset[Role]] = module.reached
    if node not in known:
        known[node] = _reached_in_function(module, node)
    return known[node]


def _reached_in_function(module: Module, node: ast.AST) -> frozenset[Role]:
    parent = module.parents.get(node)
    if parent is None:
        return EVERYONE
    above = EVERYONE if isinstance(parent, Function) else reached_in_function(module, parent)
    roles = set(above)
    if isinstance(parent, ast.If | ast.IfExp | ast.While) and node is not parent.test:
        branch = parent.body if isinstance(parent.body, list) else [parent.body]
        wanted = _truths(any(item is node for item in branch))
        roles -= {r for r in roles if value(module, parent.test, r) not in wanted}
    if isinstance(node, ast.stmt):
        for before in module.body(node):
            if before is node:
                break
            if isinstance(before, ast.If) and (leaves(before.body) or leaves(before.orelse)):
                roles -= {r for r in roles if _exits(module, before, r)}
    return frozenset(roles)


def _truths(wanted: bool) -> list[Any]:
    return [UNKNOWN, *([True, 1] if wanted else [False, 0, None])]


def _exits(module: Module, stmt: ast.If, role: Role) -> bool:
    test = value(module, stmt.test, role)
    if test is UNKNOWN:
        return False
    return leaves(stmt.body if test else stmt.orelse)


def reached(
    unit: Unit, module: Module, node: ast.AST, seen: frozenset[Function] = frozenset()
) -> frozenset[Role]:
    """Roles that may reach ``node`` in the whole program.

    A function that nobody in the unit calls by name may be called by anyone.
    """
    roles = reached_in_function(module, node)
    function = module.function(node)
    if function is None or function in seen:
        return roles
    sites = [
        (where, call)
        for where, call in unit.callers(function)
        if where.function(call) is not function
    ]
    if not sites:
        return roles
    callers: frozenset[Role] = frozenset()
    for where, call in sites:
        callers |= reached(unit, where, call, seen | {function})
    return roles & callers


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
