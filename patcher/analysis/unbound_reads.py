"""Names that a role may read before it bound them.

May-assignment, walked once per role: a name is reported only where no path of that role can have
bound it, while a lone process may have. Branches that a role cannot take are not walked.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from ...record import record
from ..source.module import Module, cached_per_module
from ..source.tree import (
    Function,
    binders,
    bound_names,
    everywhere,
    is_inside,
    number_of,
    parameters,
    place,
    within,
)
from .rank_reach import ROLES, UNKNOWN, Role, differs, value, values

LEAVING: tuple[type[ast.stmt], ...] = (ast.Return, ast.Raise, ast.Break, ast.Continue)


@record
class Unbound:
    """A read of ``name`` in ``function`` that finds nothing bound."""

    name: ast.Name
    role: Role
    function: Function


@cached_per_module
def unbound_reads(module: Module) -> list[Unbound]:
    """Reads in the functions of a module that fail on some rank and not alone."""
    tests: dict[ast.AST, list[ast.If]] = defaultdict(list)
    for stmt in module.nodes(ast.If):
        if differs(module, stmt.test):
            table, number = place(stmt)
            tests[table.nodes[table.scopes[number]]].append(stmt)
    return [
        unbound
        for function in module.functions.values()
        if function in tests
        for unbound in _unbound_reads(module, function, tests[function])
    ]


def _unbound_reads(module: Module, function: Function, tests: list[ast.If]) -> Iterator[Unbound]:
    leaving = [stmt for kind in LEAVING for stmt in within(function.body, kind)]
    names = _suspects(module, function, tests, leaving)
    given = parameters(function)
    names -= given.union(*(node.names for node in within(function.body, ast.Global)))
    names -= given.union(*(node.names for node in within(function.body, ast.Nonlocal)))
    reads: list[int] = []
    for name in names:
        reads += _unsettled_reads(module, function, name)
    if not reads:
        return
    reads.sort()
    relevant = _relevant(module, function, reads, leaving)

    def failing(role: Role) -> list[ast.Name]:
        found: list[ast.Name] = []
        _ReadWalk(module, reads, relevant, role, found).block(function.body, given)
        return found

    ways = list(zip(*(_ways(module, test) for test in tests), strict=True))
    walked = {ways[0]}  # who goes a lone process's way fails where it does
    seen: set[ast.Name] = set()
    for role, way in zip(ROLES, ways, strict=True):
        found = [] if way in walked else failing(role)
        walked.add(way)
        alone = failing(Role.SINGLE) if found else []
        for read in found:
            if read not in alone and read not in seen:
                seen.add(read)
                yield Unbound(read, role, function)


def _ways(module: Module, test: ast.If) -> list[bool | None]:
    """Which branch of a test each role takes, None where that is not known."""
    return [None if each is UNKNOWN else bool(each) for each in values(module, test.test)]


def _suspects(
    module: Module, function: Function, tests: list[ast.If], leaving: list[ast.stmt]
) -> set[str]:
    """Names that a lone process may bind and some rank does not, or that ranks alone read.

    Of the latter, those that a rank test binds, or a statement behind one that may leave.
    """
    bound: set[str] = set()
    read: set[str] = set()
    for test in tests:
        alone, *ranks = _ways(module, test)
        for branch, taken in ((test.body, True), (test.orelse, False)):
            if alone is (not taken):
                read |= {name.id for name in within(branch, ast.Name)}
            elif (not taken) in ranks:
                bound |= bound_names(branch)
            if taken in (alone, *ranks) and _may_end(branch):
                if alone is taken:
                    read |= {name.id for name in within(function.body, ast.Name)}
                else:
                    bound |= _bound_behind(function, test)
    if read:
        known = set().union(*map(bound_names, tests))
        first = next((test for test in tests if any(is_inside(n, test) for n in leaving)), None)
        if first is not None:
            known |= _bound_behind(function, first)
        bound |= read & known
    return bound


def _bound_behind(function: Function, stmt: ast.stmt) -> set[str]:
    """Names that the function binds in the statement or behind it."""
    table, scope = place(function)
    bindings = table.bindings_in(number_of(stmt), table.ends[scope])
    return {name for index, name in bindings if table.scopes[index] == scope}


def _may_end(body: list[ast.stmt]) -> bool:
    """Whether some role may find no way through a block to what stands behind it."""
    for stmt in body:
        match stmt:
            case ast.Return() | ast.Raise() | ast.Break() | ast.Continue():
                return True
            case ast.If():
                ends = _may_end(stmt.body) or _may_end(stmt.orelse)
            case ast.For() | ast.AsyncFor() | ast.While():
                ends = _may_end(stmt.orelse)
            case ast.With() | ast.AsyncWith():
                ends = _may_end(stmt.body)
            case ast.Try():
                ends = _may_end(stmt.body) or _may_end(stmt.orelse)
                ends = ends and all(_may_end(handler.body) for handler in stmt.handlers)
                ends = ends or _may_end(stmt.finalbody)
            case _:
                ends = False
        if ends:
            return True
    return False


def _unsettled_reads(module: Module, function: Function, name: str) -> list[int]:
    """Numbers of a name's reads that stand behind none of its bindings in that one's block."""
    table, scope = place(function)
    numbers = table.spelled.get(name, [])
    start = bisect_left(numbers, number_of(function.body[0]))
    end = bisect_left(numbers, table.ends[scope])
    reads = [
        number
        for number in numbers[start:end]
        if table.scopes[number] == scope
        and isinstance(node := table.nodes[number], ast.Name)
        and isinstance(node.ctx, ast.Load)
    ]
    branches: set[tuple[ast.AST, bool]] = set()
    for store in module.stores.get((function, name), ()):
        if not reads:
            break
        stmt = module.statement(store)
        if isinstance(stmt, ast.Assign):
            reads = _not_behind(module, stmt, reads)
            test = module.parents[stmt]
            if isinstance(test, ast.If):
                taken = stmt in test.body
                branches.add((test, taken))
                if (test, not taken) in branches:  # bound either way
                    reads = _not_behind(module, test, reads)
    return reads


def _not_behind(module: Module, stmt: ast.stmt, reads: list[int]) -> list[int]:
    """Those that do not stand behind a statement in its block, where no way leads around it."""
    table, number = place(stmt)
    start, end = table.ends[number], table.ends[number_of(module.body(stmt)[-1])]
    return [read for read in reads if not start <= read < end]


def _relevant(
    module: Module, function: Function, reads: list[int], leaving: list[ast.stmt]
) -> set[ast.AST]:
    """Statements that read or bind one of the names, or leave, and what is around them."""
    nodes: list[Any] = place(function)[0].nodes
    marks: list[Any] = [nodes[number] for number in reads]
    names = {name.id for name in marks}
    marks += [node for node, name in binders(function) if name in names]
    marks += leaving
    found: set[ast.AST] = set()
    for mark in marks:
        while mark not in found and mark is not function:
            found.add(mark)
            mark = module.parents[mark]
    return found


@record
class _ReadWalk:
    """One role's way through a function; ``bound`` sets are passed along, never changed."""

    module: Module
    reads: list[int]
    relevant: set[ast.AST]
    role: Role
    found: list[ast.Name]

    def block(self, body: list[ast.stmt], bound: set[str]) -> set[str] | None:
        """What may be bound behind ``body``; None when nothing runs on behind it."""
        for stmt in body:
            if stmt not in self.relevant:
                continue
            after = self.statement(stmt, bound)
            if after is None:
                return None
            bound = after
        return bound

    def expression(self, node: ast.AST, bound: set[str]) -> None:
        table, start = place(node)
        first, last = (bisect_left(self.reads, end) for end in (start, table.ends[start]))
        nodes: list[Any] = table.nodes
        for name in map(nodes.__getitem__, self.reads[first:last]):
            if (
                name.id not in bound
                and not self._comprehension_name(name, node)
                and name not in self.found
            ):
                self.found.append(name)

    def _comprehension_name(self, name: ast.Name, top: ast.AST) -> bool:
        return any(
            name.id in bound_names(part.target) for part in everywhere(top, ast.comprehension)
        )

    def statement(self, stmt: ast.stmt, bound: set[str]) -> set[str] | None:
        match stmt:
            case ast.If():
                self.expression(stmt.test, bound)
                test = value(self.module, stmt.test, self.role)
                ways = [
                    branch
                    for branch, taken in ((stmt.body, True), (stmt.orelse, False))
                    if test is UNKNOWN or bool(test) is taken
                ]
                return join([self.block(way, bound) for way in ways])
            case ast.For() | ast.AsyncFor() | ast.While():
                head = stmt.test if isinstance(stmt, ast.While) else stmt.iter
                self.expression(head, bound)
                inside = bound | (
                    set() if isinstance(stmt, ast.While) else bound_names(stmt.target)
                )
                # A later round may read what an earlier one bound, in any branch this role takes.
                carried = inside | self._taken(stmt.body)
                self.block(stmt.body, inside)
                return self.block(stmt.orelse, bound | carried)
            case ast.Try():
                inner = self.block(stmt.body, bound)
                during = bound | self._taken(stmt.body)
                ends = [None if inner is None else self.block(stmt.orelse, inner)]
                for handler in stmt.handlers:
                    names = {handler.name} if handler.name else set()
                    ends.append(self.block(handler.body, during | names))
                end = join(ends)
                final = self.block(stmt.finalbody, during if end is None else end)
                return None if end is None else final
            case ast.With() | ast.AsyncWith():
                for item in stmt.items:
                    self.expression(item.context_expr, bound)
                    if item.optional_vars:
                        bound = bound | bound_names(item.optional_vars)
                return self.block(stmt.body, bound)
            case ast.Return() | ast.Raise() | ast.Break() | ast.Continue():
                self.expression(stmt, bound)
                return None
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return bound | {stmt.name}
            case ast.Match():
                self.expression(stmt.subject, bound)
                return bound | bound_names(stmt)
        self.expression(stmt, bound)
        return bound | bound_names(stmt)

    def _taken(self, body: list[ast.stmt]) -> set[str]:
        """Names bound anywhere in ``body`` except in branches that this role never takes."""
        names: set[str] = set()
        for stmt in body:
            if stmt not in self.relevant:
                continue
            if isinstance(stmt, ast.If):
                test = value(self.module, stmt.test, self.role)
                if test is UNKNOWN or test:
                    names |= self._taken(stmt.body)
                if test is UNKNOWN or not test:
                    names |= self._taken(stmt.orelse)
            elif isinstance(stmt, ast.For | ast.While | ast.With):
                names |= bound_names(stmt) - bound_names(stmt.body) | self._taken(stmt.body)
            elif isinstance(stmt, ast.Try):
                parts = [stmt.body, stmt.orelse, stmt.finalbody, *(h.body for h in stmt.handlers)]
                names |= set().union(*(self._taken(part) for part in parts))
            else:
                names |= bound_names(stmt)
        return names


def join(ends: list[set[str] | None]) -> set[str] | None:
    """May-bound names where several ways meet; None when none of them arrives."""
    arriving = [end for end in ends if end is not None]
    return set().union(*arriving) if arriving else None
