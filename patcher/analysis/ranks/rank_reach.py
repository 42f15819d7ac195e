"""Which processes can reach a statement, through enclosing tests, early exits and call sites."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from ...source.module import Module, cached_per_program
from ...source.tree import Function, locate, number_of
from ..language.objects import classes_of, is_read_whole, method_of
from ..training.frameworks import MAIN_ONLY_DECORATORS
from ..training.program import Program
from .rank_values import QUERIES as QUERIES
from .rank_values import RANK_NAMES as RANK_NAMES
from .rank_values import RANK_OF_ROLE as RANK_OF_ROLE
from .rank_values import WORLD_SIZE_OF_ROLE as WORLD_SIZE_OF_ROLE
from .rank_values import differs_by_role as differs_by_role
from .rank_values import is_rank_test as is_rank_test
from .rank_values import is_world_size as is_world_size
from .rank_values import value_for_role as value_for_role
from .rank_values import values_by_role as values_by_role
from .roles import ALL_UNKNOWN as ALL_UNKNOWN
from .roles import ROLES as ROLES
from .roles import UNKNOWN as UNKNOWN
from .roles import Role as Role
from .roles import Values as Values
from .spawning import (
    is_started,
    is_started_beside_launchers,
    scope_of,
    starters_of_ranks,
    starting_calls,
    works_without_group,
)

EVERYONE = frozenset(ROLES)
RANKS = frozenset({Role.MAIN, Role.OTHER})
BEHIND_GATE = frozenset({Role.SINGLE, Role.MAIN})
Reach = tuple[int, int, frozenset[Role]]  # first node, end of the range, roles that reach it


def always_exits(body: list[ast.stmt]) -> bool:
    """Whether a block ends in ``return``, ``raise``, ``continue`` or ``break``."""
    return bool(body) and isinstance(body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)


def roles_reaching_in_function(module: Module, node: ast.AST) -> frozenset[Role]:
    """Roles that may reach ``node`` once its function is entered."""
    function = module.function(node)
    roles = BEHIND_GATE if _is_for_main(module, function) else EVERYONE
    number = number_of(node)
    for start, end, roles_there in _reaches(module).get(function, ()):
        if start <= number < end:
            roles &= roles_there
    return roles


def _is_for_main(module: Module, function: Function | None) -> bool:
    """Whether a decorator such as ``@master_only`` keeps a function's body to rank 0."""
    decorators = [] if function is None else function.decorator_list
    return any(module.last_name(each) in MAIN_ONLY_DECORATORS for each in decorators)


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
            yield (
                *_extent(nodes),
                frozenset(r for r, result in results.items() if _may_take(result, outcome)),
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


def _may_take(value: Any, outcome: bool) -> bool:
    """Whether a test of this value may run its body, or, for False, its ``else``."""
    return value is UNKNOWN or bool(value) is outcome


def roles_reaching(program: Program, module: Module, node: ast.AST) -> frozenset[Role]:
    """Roles that may reach ``node`` in the whole program."""
    roles = roles_reaching_in_function(module, node)
    if is_for_one_process(program, module, node):
        return roles & {Role.SINGLE}
    function = module.function(node)
    if function is None:
        return roles
    return roles & roles_entering(program, function)


def is_for_one_process(program: Program, module: Module, node: ast.AST) -> bool:
    """Whether a program that starts its ranks comes to a place as the process that starts them."""
    if not starting_calls(program):
        return False
    starters = starters_of_ranks(program)
    return scope_of(module, node) in starters or works_without_group(program, module, node)


def roles_entering(program: Program, function: Function) -> frozenset[Role]:
    """Roles that may enter a function: a fixpoint over those that lead to it.

    All may enter one that nothing calls. Where a method is called on objects of unknown class only,
    and where a function is passed on as a value, those places count as calls. Calls in functions
    that the script never comes to count only where there are no others.
    """
    known = program.roles_entering
    if function not in known:
        known.update(_entering_roles(program, function, known))
    return known[function]


def _entry_places(program: Program, function: Function) -> list[tuple[Module, ast.expr]]:
    places: list[tuple[Module, ast.expr]] = [*program.callers(function)]
    possible = program.possible_callers(function)
    places += [p for p in possible if not places or not isinstance(p[1], ast.Call)]
    return [p for p in places if program.is_called(*p)] or places


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
            roles &= _roles_with_object(program, where, place, function)
            if is_started(program, where, place) or is_started_beside_launchers(where, place):
                roles, caller = RANKS, None
            elif is_for_one_process(program, where, place):
                roles, caller = roles & {Role.SINGLE}, None
            elif caller is not None and caller in known:
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


def _roles_with_object(
    program: Program, module: Module, place: ast.expr, method: Function
) -> frozenset[Role]:
    """Roles for which the object that a method is called on may be one that has it.

    ``saver = Saver(folder) if rank == 0 else Nothing()``: rank 0 alone comes to Saver's methods.
    """
    match place:
        case ast.Call(func=ast.Attribute(value=ast.Name() as holder)):
            made = module.alternatives(holder, holder)
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=name))):
            made = module.attribute_values.get(name, [])
        case _:
            return EVERYONE
    made = [
        part
        for value in made
        for part in ([value.body, value.orelse] if isinstance(value, ast.IfExp) else [value])
    ]
    if len(made) < 2:
        return EVERYONE
    holding = [value for value in made if _may_have(program, module, value, method)]
    roles = [roles_reaching_in_function(module, value) for value in holding]
    return frozenset[Role]().union(*roles) if roles else EVERYONE


def _may_have(program: Program, module: Module, value: ast.expr, method: Function) -> bool:
    """Whether a value may be an object whose method of that name is this one."""
    if isinstance(value, ast.Constant):
        return False
    classes = classes_of(program, module, value) if isinstance(value, ast.Call) else []
    for owner in classes:
        found = method_of(program, owner, method.name)
        if found[1] is method if found is not None else not is_read_whole(program, owner):
            return True
    return not classes


def is_surely_entered(program: Program, function: Function | None) -> bool:
    """Whether calls that are known lead from a module's own code to a function.

    Not so of one that nothing calls, and of a method that is called on objects of unknown class
    only: it may serve a program that is not read, or none.
    """
    seen: set[Function] = set()
    unseen = [function]
    while unseen:
        one = unseen.pop()
        if one is None:
            return True
        if one in seen:
            continue
        seen.add(one)
        places: list[tuple[Module, ast.expr]] = [*program.callers(one)]
        places += [p for p in program.possible_callers(one) if not isinstance(p[1], ast.Call)]
        unseen += [where.function(each) for where, each in places if program.is_called(where, each)]
    return False


def is_doubtful(program: Program, module: Module, node: ast.AST) -> bool:
    """Whether a place lies in a module of which the script may use other parts alone."""
    return module is not program.script and not is_surely_entered(program, module.function(node))


def rank_gates(module: Module, node: ast.AST) -> list[ast.If]:
    """The tests around ``node`` in its function that keep at least one rank away from it.

    Not those that keep every process away, such as of an option that the one call leaves off.
    """
    gating: list[ast.If] = []
    child: ast.AST = node
    for parent in module.ancestors(node):
        if isinstance(parent, Function):
            break
        if isinstance(parent, ast.If) and child is not parent.test:
            outcome = any(item is child for item in parent.body)
            values = {role: value_for_role(module, parent.test, role) for role in ROLES}
            passing = {role for role, value in values.items() if _may_take(value, outcome)}
            if passing and not passing >= RANKS:
                gating.append(parent)
        child = parent
    return gating
