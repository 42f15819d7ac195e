"""Exits from training by what rank 0 alone counts: ``if score > best and rank == 0: bad = 0``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ....record import record
from ...editing.helpers import helper_names
from ...source.module import Module
from ...source.tree import FUNCTIONS, Function, everywhere, is_inside, mentions, precedes, within
from ..training.frameworks import COLLECTIVE_METHODS, COLLECTIVES
from ..training.program import Program
from ..training.train_loops import TrainLoop
from .rank_reach import RANKS, Role, roles_reaching, roles_reaching_in_function

LOOPS = (ast.For, ast.AsyncFor, ast.While)
MAX_CALLERS = 3
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
    places: list[tuple[Module, ast.AST]] = [(loop.module, loop.steps)]
    seen: set[Function | None] = set()
    for _ in range(MAX_CALLERS):
        above: list[tuple[Module, ast.AST]] = []
        for module, place in places:
            function = module.function(place)
            if function in seen:
                continue
            seen.add(function)
            for leaving in exits_from(module, place):
                yield from counted_by_rank_0(program, module, leaving)
            above += program.callers(function) if function is not None else []
        places = above


def exits_from(module: Module, place: ast.AST) -> Iterator[ast.Break | ast.Return]:
    """The conditional exits from the loops around a place, or from that loop itself."""
    training = {place, *module.ancestors(place)}
    scope = module.scope_statements(place)
    candidates = [*within(scope, ast.Break), *within(scope, ast.Return)]
    for leaving in candidates:
        around = [up for up in module.ancestors(leaving) if isinstance(up, LOOPS)]
        left = around if isinstance(leaving, ast.Return) else around[:1]
        if not training.isdisjoint(left):
            yield leaving


def counted_by_rank_0(
    program: Program, module: Module, leaving: ast.Break | ast.Return
) -> Iterator[CountedExit]:
    """An exit, for the first name in the tests around it that rank 0 alone binds in the loop."""
    if Role.OTHER not in roles_reaching(program, module, leaving):
        return
    ups = module.ancestors(leaving)
    ups = ups[: next((i for i, up in enumerate(ups) if isinstance(up, FUNCTIONS)), len(ups))]
    outermost = [up for up in ups if isinstance(up, LOOPS)][-1]
    tests = [up for up in ups if isinstance(up, ast.If)]
    names = {name.id: up for up in tests for name in everywhere(up.test, ast.Name)}
    for name, test in names.items() if len(names) <= MAX_NAMES else ():
        stores = [
            store
            for store in module.stores.get((module.function(leaving), name), ())
            if is_inside(store, outermost)
        ]
        of_main = [
            store
            for store in stores
            if roles_reaching_in_function(module, store) & RANKS == {Role.MAIN}
        ]
        if not of_main or is_told_all(module, leaving, name):
            continue
        gate = gate_of(module, of_main[-1])
        anew = [store for store in stores if is_bound_anew(module, store)]
        if gate is None or any(precedes(gate, each) and precedes(each, test) for each in anew):
            continue
        if not any(is_inside(leaving, stmt) for stmt in gate.body):
            yield CountedExit(module, leaving, name, gate)
            return


def gate_of(module: Module, store: ast.Name) -> ast.If | None:
    """The test that keeps the other ranks from where a name is bound."""
    for up in module.ancestors(store):
        if isinstance(up, ast.If) and roles_reaching_in_function(module, up) >= RANKS:
            return up
    return None


def is_bound_anew(module: Module, store: ast.Name) -> bool:
    """Whether all ranks bind a name by something else than itself: ``stop = flag.item()``."""
    stmt = module.statement(store)
    return (
        isinstance(stmt, ast.Assign)
        and roles_reaching_in_function(module, store) >= RANKS
        and not mentions(stmt.value, store.id)
    )


def is_told_all(module: Module, place: ast.AST, name: str) -> bool:
    """Whether a collective in the function is of a name, or gives it."""
    tells = {*COLLECTIVES, *COLLECTIVE_METHODS, *helper_names()}
    return any(
        module.last_name(call.func) in tells and mentions(module.statement(call), name)
        for call in within(module.scope_statements(place), ast.Call)
    )
