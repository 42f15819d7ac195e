"""Which processes can reach a statement: rank tests are evaluated for each of three roles.

A test such as ``args.local_rank in [-1, 0] and args.do_eval`` is unknown before the run, but its
rank part is known for a given role. This partial evaluation (true, false or unknown) gives the
roles that can reach a statement, through enclosing tests, early exits and call sites.
"""

from __future__ import annotations

import ast
import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any

from ..source.module import Module, cached_per_program
from ..source.tree import Function, argument, locate, number_of, within
from .program import Program


class Role(Enum):
    """A kind of process."""

    SINGLE = "the only process"
    MAIN = "rank 0"
    OTHER = "the other ranks"


ROLES = tuple(Role)
ROLE_INDEX = {role: index for index, role in enumerate(ROLES)}
EVERYONE = frozenset(ROLES)
RANKS = frozenset({Role.MAIN, Role.OTHER})

UNKNOWN: Any = type("Unknown", (), {"__repr__": lambda _: "UNKNOWN"})()
Values = tuple[object, ...]  # one for each role, in the order of ROLES
Reach = tuple[int, int, frozenset[Role]]  # first node, end of the range, roles that reach it
ALL_UNKNOWN: Values = (UNKNOWN, UNKNOWN, UNKNOWN)

# Names of a process's rank. Without a process group scripts set them to -1.
RANK_NAMES = {"local_rank", "global_rank", "rank", "node_rank", "LOCAL_RANK", "RANK"}
RANK_OF_ROLE = {Role.SINGLE: -1, Role.MAIN: 0, Role.OTHER: 1}
WORLD_SIZE_OF_ROLE = {Role.SINGLE: 1, Role.MAIN: 2, Role.OTHER: 2}
RANK_OF_EACH, WORLD_OF_EACH = tuple(RANK_OF_ROLE.values()), tuple(WORLD_SIZE_OF_ROLE.values())
ENVIRONMENT_VARIABLES = RANK_NAMES | {"WORLD_SIZE"}
# What functions of torch.distributed return for each role.
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


def value_for_role(module: Module, node: ast.expr, role: Role) -> Any:
    """The value of ``node`` in a process of this role, or UNKNOWN."""
    return values_by_role(module, node)[ROLE_INDEX[role]]


def values_by_role(module: Module, node: ast.expr) -> Values:
    """The value of ``node`` for each role, in one walk. Cached."""
    known = module.role_values.get(node)
    if known is None:
        known = module.role_values[node] = _values(module, node, 0)
    return known


def _values(module: Module, node: ast.expr, depth: int) -> Values:
    evaluate = EVALUATE.get(type(node))
    return ALL_UNKNOWN if evaluate is None or depth > 8 else evaluate(module, node, depth)


def _constant(module: Module, node: ast.Constant, depth: int) -> Values:
    return (node.value,) * 3


def _unary(module: Module, node: ast.UnaryOp, depth: int) -> Values:
    inner = _values(module, node.operand, depth + 1)
    return (
        ALL_UNKNOWN
        if inner is ALL_UNKNOWN
        else tuple([_apply_unary(node.op, item) for item in inner])
    )


def _apply_unary(op: ast.unaryop, item: Any) -> Any:
    if isinstance(op, ast.Not):
        return UNKNOWN if item is UNKNOWN else not item
    return -item if isinstance(op, ast.USub) and isinstance(item, int | float) else UNKNOWN


def _display(module: Module, node: ast.List | ast.Tuple | ast.Set, depth: int) -> Values:
    parts = [_values(module, item, depth + 1) for item in node.elts]
    columns = zip(*parts, strict=True) if parts else [(), (), ()]
    return tuple([UNKNOWN if UNKNOWN in items else list(items) for items in columns])


def _connective(module: Module, node: ast.BoolOp, depth: int) -> Values:
    parts = [_values(module, item, depth + 1) for item in node.values]
    if all(part is ALL_UNKNOWN for part in parts):
        return ALL_UNKNOWN
    decisive = isinstance(node.op, ast.Or)  # one operand with this truth value decides
    return tuple([_connected(items, decisive) for items in zip(*parts, strict=True)])


def _connected(items: tuple[object, ...], decisive: bool) -> Any:
    known = [bool(item) for item in items if item is not UNKNOWN]
    if decisive in known:
        return decisive
    return UNKNOWN if len(known) < len(items) else not decisive


def _comparison(module: Module, node: ast.Compare, depth: int) -> Values:
    if len(node.ops) > 1:
        return ALL_UNKNOWN
    left, op, right = node.left, node.ops[0], node.comparators[0]
    if isinstance(left, ast.Constant) and left.value in ENVIRONMENT_VARIABLES:
        is_in = isinstance(op, ast.In)  # "LOCAL_RANK" in os.environ
        return not is_in, is_in, is_in
    first = _values(module, left, depth + 1)
    if first is ALL_UNKNOWN:
        return ALL_UNKNOWN
    second = _values(module, right, depth + 1)
    if second is ALL_UNKNOWN:
        return ALL_UNKNOWN
    compare = COMPARE[type(op)]
    return tuple([_compare_values(compare, *sides) for sides in zip(first, second, strict=True)])


def _compare_values(compare: Callable[[Any, Any], Any], first: Any, second: Any) -> Any:
    if first is UNKNOWN or second is UNKNOWN:
        return UNKNOWN
    try:
        return compare(first, second)
    except TypeError:
        return UNKNOWN


def _conditional(module: Module, node: ast.IfExp, depth: int) -> Values:
    tests = _values(module, node.test, depth + 1)
    if tests is ALL_UNKNOWN:
        return ALL_UNKNOWN
    body, orelse = (_values(module, part, depth + 1) for part in (node.body, node.orelse))
    return tuple(
        [
            UNKNOWN if test is UNKNOWN else first if test else second
            for test, first, second in zip(tests, body, orelse, strict=True)
        ]
    )


def _name(module: Module, node: ast.Name, depth: int) -> Values:
    if node.id in RANK_NAMES and (module.function(node), node.id) not in module.stores:
        return RANK_OF_EACH  # a parameter; a local variable may be the rank of something else
    assigned = module.single_assignment(module.function(node), node.id)
    known = ALL_UNKNOWN if assigned is None else _values(module, assigned, depth + 1)
    if node.id == "n_gpu":
        return known[0], 1, 1  # one GPU per process of a group
    if node.id == "world_size":
        return _with_defaults(known, WORLD_OF_EACH)
    return known


def _with_defaults(known: Values, defaults: Values) -> Values:
    pairs = zip(known, defaults, strict=True)
    return tuple([default if item is UNKNOWN else item for item, default in pairs])


def _attribute(module: Module, node: ast.Attribute, depth: int) -> Values:
    if node.attr in ("global_rank", "rank"):
        return _rank_attribute(module, node, depth)
    if node.attr in RANK_NAMES:
        return RANK_OF_EACH
    if node.attr == "world_size":
        return WORLD_OF_EACH
    return (UNKNOWN, 1, 1) if node.attr == "n_gpu" else ALL_UNKNOWN


def _rank_attribute(module: Module, node: ast.Attribute, depth: int) -> Values:
    """``args.global_rank``: 0 in a single process too, if it is assigned from ``get_rank()``."""
    assigned = module.attribute_values.get(node.attr, [])
    known = _values(module, assigned[0], depth + 1) if len(assigned) == 1 else ALL_UNKNOWN
    return _with_defaults(known, RANK_OF_EACH)


def _environment_variable(name: object) -> Values:
    """The values that a launcher sets an environment variable to."""
    if name == "WORLD_SIZE":
        return WORLD_OF_EACH
    return RANK_OF_EACH if name in RANK_NAMES else ALL_UNKNOWN


def _subscript(module: Module, node: ast.Subscript, depth: int) -> Values:
    return (
        _environment_variable(node.slice.value)
        if isinstance(node.slice, ast.Constant)
        else ALL_UNKNOWN
    )


def _call(module: Module, node: ast.Call, depth: int) -> Values:
    name = module.last_name(node.func)
    if name in QUERIES:
        return QUERIES[name]
    if name == "int" and len(node.args) == 1:
        return _values(module, node.args[0], depth + 1)
    key = argument(node, 0, "key") if name in ("get", "getenv") else None
    if isinstance(key, ast.Constant):
        from_launcher = _environment_variable(key.value)
        if from_launcher is not ALL_UNKNOWN:
            return from_launcher
    function = module.functions.get(name)
    if function is not None and isinstance(node.func, ast.Name):
        last = function.body[-1]
        if isinstance(last, ast.Return) and last.value and not within(function.body, ast.If):
            return _values(module, last.value, depth + 1)
    return ALL_UNKNOWN


EVALUATE: dict[type[ast.expr], Callable[[Module, Any, int], Values]] = {
    ast.Constant: _constant,
    ast.UnaryOp: _unary,
    ast.List: _display,
    ast.Tuple: _display,
    ast.Set: _display,
    ast.BoolOp: _connective,
    ast.Compare: _comparison,
    ast.IfExp: _conditional,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Call: _call,
}


def differs_by_role(module: Module, test: ast.expr) -> bool:
    """Whether a test differs between rank 0, the other ranks and a single process."""
    alone, main, other = values_by_role(module, test)
    return not alone is main is other and len({str(alone), str(main), str(other)}) > 1


def is_rank_test(module: Module, test: ast.expr) -> bool:
    """Whether a test is known for every role and not the same for all."""
    results = values_by_role(module, test)
    return UNKNOWN not in results and len({bool(result) for result in results}) > 1


def always_exits(body: list[ast.stmt]) -> bool:
    """Whether a block ends in ``return``, ``raise``, ``continue`` or ``break``."""
    return bool(body) and isinstance(body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)


def roles_reaching_in_function(module: Module, node: ast.AST) -> frozenset[Role]:
    """Roles that may reach ``node`` once its function is entered."""
    roles = EVERYONE
    number = number_of(node)
    for start, end, roles_there in _reaches(module).get(module.function(node), ()):
        if start <= number < end:
            roles &= roles_there
    return roles


@cached_per_program
def _reaches(module: Module) -> dict[Function | None, list[Reach]]:
    """Who reaches the branches of each test, and what follows their exits, by function."""
    reaches: dict[Function | None, list[Reach]] = defaultdict(list)
    tests: list[ast.If | ast.IfExp | ast.While] = [*module.nodes(ast.If)]
    tests += [*module.nodes(ast.IfExp), *module.nodes(ast.While)]
    for test in tests:
        if values_by_role(module, test.test) is not ALL_UNKNOWN:
            reaches[module.function(test)] += _reaches_of(module, test)
    return reaches


def _reaches_of(module: Module, test: ast.If | ast.IfExp | ast.While) -> Iterator[Reach]:
    results = dict(zip(ROLES, values_by_role(module, test.test), strict=True))
    for branch, outcome in ((test.body, True), (test.orelse, False)):
        nodes = branch if isinstance(branch, list) else [branch]
        if nodes:
            accepted = _values_that_may_take(outcome)
            yield (
                *_extent(nodes),
                frozenset(r for r, result in results.items() if result in accepted),
            )
    if isinstance(test, ast.If) and (always_exits(test.body) or always_exits(test.orelse)):
        roles = frozenset(
            role
            for role, result in results.items()
            if result is UNKNOWN or not always_exits(test.body if result else test.orelse)
        )
        (_, start), (_, end) = _extent([test]), _extent(module.body(test))
        yield start, end, roles


def _extent(nodes: Sequence[ast.AST]) -> tuple[int, int]:
    """The number of the first node, and one past the last descendant of the last."""
    table, last = locate(nodes[-1])
    return number_of(nodes[0]), table.ends[last]


def _values_that_may_take(outcome: bool) -> list[Any]:
    """Values of a test with which its body (or, for False, its ``else``) may run."""
    return [UNKNOWN, *([True, 1] if outcome else [False, 0, None])]


def roles_reaching(program: Program, module: Module, node: ast.AST) -> frozenset[Role]:
    """Roles that may reach ``node`` in the whole program."""
    roles = roles_reaching_in_function(module, node)
    function = module.function(node)
    if function is None:
        return roles
    return roles & roles_entering(program, function)


def roles_entering(program: Program, function: Function) -> frozenset[Role]:
    """Roles that may enter a function: a fixpoint over those that lead to it.

    All may enter one that nothing calls. Where a method is called on objects of unknown class only,
    and where a function is passed on as a value, those places count as calls.
    """
    known = program.roles_entering
    if function not in known:
        known.update(_entering_roles(program, function, known))
    return known[function]


def _entry_places(program: Program, function: Function) -> list[tuple[Module, ast.expr]]:
    places: list[tuple[Module, ast.expr]] = [*program.callers(function)]
    possible = program.possible_callers(function)
    return places + [p for p in possible if not places or not isinstance(p[1], ast.Call)]


def _entering_roles(
    program: Program, function: Function, known: dict[Function, frozenset[Role]]
) -> dict[Function, frozenset[Role]]:
    """Roles that may enter a function and all that lead to it and are not known yet."""
    entries: dict[Function, list[tuple[Function | None, frozenset[Role]]]] = {}
    callees: dict[Function | None, list[Function]] = defaultdict(list)
    unseen = [function]
    while unseen:
        function = unseen.pop()
        if function in entries:
            continue
        entries[function] = []
        for where, place in _entry_places(program, function):
            caller = where.function(place)
            if caller is function:
                continue
            roles = roles_reaching_in_function(where, place)
            if caller is not None and caller in known:
                roles &= known[caller]
                caller = None
            entries[function].append((caller, roles))
            callees[caller].append(function)
            if caller is not None:
                unseen.append(caller)
        if not entries[function]:
            entries[function] = [(None, EVERYONE)]
    entering: dict[Function, frozenset[Role]] = dict.fromkeys(entries, frozenset())
    pending = list(entries)
    while True:
        while pending:
            function = pending.pop()
            roles = frozenset[Role]().union(
                *(
                    at_call if caller is None else at_call & entering[caller]
                    for caller, at_call in entries[function]
                )
            )
            if roles != entering[function]:
                entering[function] = roles
                pending += callees[function]
        unreached = [function for function, roles in entering.items() if not roles]
        # Functions that only each other call, from a place that somebody reaches.
        pending = [
            f
            for f in unreached
            if any(caller in entering and at_call for caller, at_call in entries[f])
        ]
        circle = [
            f for f in pending if all(c in entering and not entering[c] for c, _ in entries[f])
        ]
        if not circle:
            return entering
        entering[circle[0]] = EVERYONE
        pending = list(callees[circle[0]])
        entries[circle[0]].append((None, EVERYONE))


def rank_gates(module: Module, node: ast.AST) -> list[ast.If]:
    """The tests around ``node`` in its function that keep at least one rank away from it."""
    gating: list[ast.If] = []
    child: ast.AST = node
    for parent in module.ancestors(node):
        if isinstance(parent, Function):
            break
        if isinstance(parent, ast.If) and child is not parent.test:
            accepted = _values_that_may_take(any(item is child for item in parent.body))
            if any(value_for_role(module, parent.test, role) not in accepted for role in RANKS):
                gating.append(parent)
        child = parent
    return gating
