"""Exits from training by what rank 0 alone counts: ``if score > best and rank == 0: bad = 0``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ....record import record
from ...editing.helpers import helper_names
from ...source.module import Module
from ...source.tree import FUNCTIONS, everywhere, is_inside, mentions, precedes, within
from ..language.objects import classes_of
from ..training.frameworks import COLLECTIVE_METHODS, COLLECTIVES
from ..training.program import Program
from ..training.train_loops import TrainLoop
from .rank_divergence import LOOPS, calling_places, leaves_loops
from .rank_reach import RANKS, Role, roles_reaching, roles_reaching_in_function

MAX_NAMES = 8  # of one test


@record
class CountedExit:
    """An exit that other ranks may take by a name, and the test that leaves its count to rank 0."""

    module: Module
    exit: ast.Break | ast.Return
    name: str
    gate: ast.If


def exits_by_counts(program: Program, loop: TrainLoop) -> Iterator[CountedExit]:
    """Exits from a training loop, or from those around it in callers, by rank 0's counts."""
    for module, place in calling_places(program, loop):
        for leaving in exits_from(module, place):
            yield from counted_by_rank_0(program, module, leaving)


def exits_from(module: Module, place: ast.AST) -> Iterator[ast.Break | ast.Return]:
    """The conditional exits from the loops around a place, or from that loop itself."""
    scope = module.scope_statements(place)
    leaving: list[ast.Break | ast.Return] = [*within(scope, ast.Break), *within(scope, ast.Return)]
    return (each for each in leaving if leaves_loops(module, place, each))


def counted_by_rank_0(
    program: Program, module: Module, leaving: ast.Break | ast.Return
) -> Iterator[CountedExit]:
    """An exit, for the first name or attribute in its tests that rank 0 alone binds in the loop."""
    if Role.OTHER not in roles_reaching(program, module, leaving):
        return
    ups = module.ancestors(leaving)
    ups = ups[: next((i for i, up in enumerate(ups) if isinstance(up, FUNCTIONS)), len(ups))]
    outermost = [up for up in ups if isinstance(up, LOOPS)][-1]
    asked: dict[str, tuple[ast.Name | ast.Attribute, ast.If]] = {}
    for up in ups:
        if isinstance(up, ast.If):
            parts: list[ast.Name | ast.Attribute] = [*everywhere(up.test, ast.Name)]
            parts += everywhere(up.test, ast.Attribute)
            outer = [each for each in parts if not isinstance(module.parents[each], ast.Attribute)]
            asked |= {module.text(each): (each, up) for each in outer}
    for name, (node, test) in asked.items() if len(asked) <= MAX_NAMES else ():
        stores = bindings(program, module, outermost, node)
        of_main = [
            store
            for store in stores
            if roles_reaching_in_function(module, store) & RANKS == {Role.MAIN}
        ]
        if not of_main or is_told_all(module, leaving, node):
            continue
        if any(isinstance(store, ast.Call) and store not in of_main for store in stores):
            continue  # an object that all ranks tell
        gate = gate_of(module, of_main[-1])
        anew = [store for store in stores if is_bound_anew(module, store, node)]
        if gate is None or any(precedes(gate, each) and precedes(each, test) for each in anew):
            continue
        if not any(is_inside(leaving, stmt) for stmt in gate.body):
            yield CountedExit(module, leaving, name, gate)
            return


def bindings(
    program: Program, module: Module, outermost: ast.AST, node: ast.Name | ast.Attribute
) -> list[ast.expr]:
    """Where a loop binds a name or an attribute, also by calls of methods that set it."""
    if isinstance(node, ast.Name):
        stores = module.stores.get((module.function(node), node.id), ())
        return [store for store in stores if is_inside(store, outermost)]
    text, owner = module.text(node), module.text(node.value)
    found: list[ast.expr] = [
        each
        for each in within(outermost, ast.Attribute)
        if isinstance(each.ctx, ast.Store) and each.attr == node.attr and module.text(each) == text
    ]
    classes = classes_of(program, module, node.value)
    setting = {name for _, kind in classes for name in methods_that_set(kind, node.attr)}
    for call in within(outermost, ast.Call) if setting else ():
        called = call.func
        if module.text(called) == owner and not setting.isdisjoint(("__call__", "forward")):
            found.append(call)
        elif isinstance(called, ast.Attribute) and called.attr in setting:
            found += [call] if module.text(called.value) == owner else []
    return found


def methods_that_set(kind: ast.ClassDef, name: str) -> set[str]:
    """The methods of a class that bind an attribute of it, themselves or by one that they call."""
    methods = [each for each in kind.body if isinstance(each, FUNCTIONS)]
    setting: set[str] = {
        each.name
        for each in methods
        for part in within(each.body, ast.Attribute)
        if part.attr == name and isinstance(part.ctx, ast.Store)
    }
    calling = {
        each.name
        for each in methods
        for call in within(each.body, ast.Call)
        if isinstance(call.func, ast.Attribute) and call.func.attr in setting
    }
    return (setting | calling) - {"__init__"}


def gate_of(module: Module, store: ast.expr) -> ast.If | None:
    """The test that keeps the other ranks from where a name is bound."""
    for up in module.ancestors(store):
        if isinstance(up, ast.If) and roles_reaching_in_function(module, up) >= RANKS:
            return up
    return None


def is_bound_anew(module: Module, store: ast.expr, node: ast.Name | ast.Attribute) -> bool:
    """Whether all ranks bind a name by something else than itself: ``stop = flag.item()``."""
    stmt = module.statement(store)
    return (
        isinstance(stmt, ast.Assign)
        and not isinstance(store, ast.Call)
        and roles_reaching_in_function(module, store) >= RANKS
        and not mentions(stmt.value, module.last_name(node))
    )


def is_told_all(module: Module, place: ast.AST, node: ast.Name | ast.Attribute) -> bool:
    """Whether a collective in the function is of a name, or gives it."""
    tells = {*COLLECTIVES, *COLLECTIVE_METHODS, *helper_names()}
    return any(
        module.last_name(call.func) in tells
        and mentions(module.statement(call), module.last_name(node))
        for call in within(module.scope_statements(place), ast.Call)
    )
