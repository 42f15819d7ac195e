"""Names that some rank reads although it cannot have bound them.

A may-be-assigned analysis, walked once per role without the branches that the role cannot take. A
read is reported only if no path of that role can have bound the name, though a single process may.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from ....record import record
from ...source.module import Module, cached_per_module
from ...source.tree import (
    Function,
    binders,
    bound_names,
    everywhere,
    is_inside,
    locate,
    number_of,
    parameters,
    within,
)
from .rank_reach import ROLES, UNKNOWN, Role, differs_by_role, value_for_role, values_by_role

EXITS: tuple[type[ast.stmt], ...] = (ast.Return, ast.Raise, ast.Break, ast.Continue)


@record
class UnboundRead:
    """A read of ``name`` in ``function`` that fails because the name is unbound."""

    name: ast.Name
    role: Role
    function: Function


@cached_per_module
def unbound_reads(module: Module) -> list[UnboundRead]:
    """Reads in the functions of a module that fail on some rank but not in a single process."""
    tests: dict[ast.AST, list[ast.If]] = defaultdict(list)
    for stmt in module.nodes(ast.If):
        if differs_by_role(module, stmt.test):
            table, number = locate(stmt)
            tests[table.nodes[table.scopes[number]]].append(stmt)
    return [
        unbound
        for function in module.functions.values()
        if function in tests
        for unbound in _unbound_reads(module, function, tests[function])
    ]


def _unbound_reads(
    module: Module, function: Function, tests: list[ast.If]
) -> Iterator[UnboundRead]:
    """The failing reads in one function; ``tests`` are those that differ between roles."""
    exits = [stmt for kind in EXITS for stmt in within(function.body, kind)]
    names = _candidate_names(module, function, tests, exits)
    arguments = parameters(function)
    names -= arguments.union(*(node.names for node in within(function.body, ast.Global)))
    names -= arguments.union(*(node.names for node in within(function.body, ast.Nonlocal)))
    reads: list[int] = []
    for name in names:
        reads += _uncertain_reads(module, function, name)
    if not reads:
        return
    reads.sort()
    relevant = _relevant_nodes(module, function, reads, exits)

    def failing_reads(role: Role) -> list[ast.Name]:
        failing: list[ast.Name] = []
        _ReadWalk(module, reads, relevant, role, failing).block(function.body, arguments)
        return failing

    paths = list(zip(*(_branches_taken(module, test) for test in tests), strict=True))
    walked = {paths[0]}  # a role that takes a single process's branches fails only where that does
    seen: set[ast.Name] = set()
    for role, path in zip(ROLES, paths, strict=True):
        failing = [] if path in walked else failing_reads(role)
        walked.add(path)
        failing_alone = failing_reads(Role.SINGLE) if failing else []
        for read in failing:
            is_new = read not in failing_alone and read not in seen
            if is_new and not is_passed_by(module, read, role) and not binds_itself(module, read):
                seen.add(read)
                yield UnboundRead(read, role, function)


def binds_itself(module: Module, read: ast.Name) -> bool:
    """Whether a name is read where alone it is bound: ``x = a if b else float(x)`` fails alike."""
    stmt, function = module.statement(read), module.function(read)
    stores = module.stores.get((function, read.id), ())
    return bool(stores) and all(module.statement(store) is stmt for store in stores)


def is_passed_by(module: Module, read: ast.Name, role: Role) -> bool:
    """Whether a role is done before it reads a name: ``if is_main and best_so_far:``."""
    child: ast.AST = read
    for up in module.ancestors(read):
        if isinstance(up, ast.stmt):
            return False
        if isinstance(up, ast.BoolOp):
            ends = isinstance(up.op, ast.Or)
            before = up.values[: next(n for n, part in enumerate(up.values) if part is child)]
            values = [value_for_role(module, part, role) for part in before]
            if any(value is not UNKNOWN and bool(value) is ends for value in values):
                return True
        child = up
    return False


def _branches_taken(module: Module, test: ast.If) -> list[bool | None]:
    """Which branch of a test each role takes; None where that is unknown."""
    return [None if each is UNKNOWN else bool(each) for each in values_by_role(module, test.test)]


def _candidate_names(
    module: Module, function: Function, tests: list[ast.If], exits: list[ast.stmt]
) -> set[str]:
    """Names that a single process may bind but some rank does not, or that only ranks read.

    Of the latter only those that are bound in a rank test, or after one that may exit.
    """
    bound: set[str] = set()
    read: set[str] = set()
    for test in tests:
        single, *ranks = _branches_taken(module, test)
        for branch, outcome in ((test.body, True), (test.orelse, False)):
            if single is (not outcome):
                read |= {name.id for name in within(branch, ast.Name)}
            elif (not outcome) in ranks:
                bound |= bound_names(branch)
            if outcome in (single, *ranks) and _may_exit(branch):
                if single is outcome:
                    read |= {name.id for name in within(function.body, ast.Name)}
                else:
                    bound |= _names_bound_from(function, test)
    if read:
        depends_on_role = set().union(*map(bound_names, tests))
        first = next((test for test in tests if any(is_inside(n, test) for n in exits)), None)
        if first is not None:
            depends_on_role |= _names_bound_from(function, first)
        bound |= read & depends_on_role
    return bound


def _names_bound_from(function: Function, stmt: ast.stmt) -> set[str]:
    """Names that the function binds in or after a statement."""
    table, scope = locate(function)
    bindings = table.bindings_in(number_of(stmt), table.ends[scope])
    return {name for index, name in bindings if table.scopes[index] == scope}


def _may_exit(body: list[ast.stmt]) -> bool:
    """Whether some path through a block never reaches what follows it."""
    for stmt in body:
        match stmt:
            case ast.Return() | ast.Raise() | ast.Break() | ast.Continue():
                return True
            case ast.If():
                ends = _may_exit(stmt.body) or _may_exit(stmt.orelse)
            case ast.For() | ast.AsyncFor() | ast.While():
                ends = _may_exit(stmt.orelse)
            case ast.With() | ast.AsyncWith():
                ends = _may_exit(stmt.body)
            case ast.Try():
                ends = _may_exit(stmt.body) or _may_exit(stmt.orelse)
                ends = ends and all(_may_exit(handler.body) for handler in stmt.handlers)
                ends = ends or _may_exit(stmt.finalbody)
            case _:
                ends = False
        if ends:
            return True
    return False


def _uncertain_reads(module: Module, function: Function, name: str) -> list[int]:
    """Numbers of a name's reads that follow no assignment to it in the assignment's block."""
    table, scope = locate(function)
    numbers = table.numbers_by_spelling.get(name, [])
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
            reads = _not_after(module, stmt, reads)
            test = module.parents[stmt]
            if isinstance(test, ast.If):
                in_body = stmt in test.body
                branches.add((test, in_body))
                if (test, not in_body) in branches:  # bound in both branches
                    reads = _not_after(module, test, reads)
    return reads


def _not_after(module: Module, stmt: ast.stmt, reads: list[int]) -> list[int]:
    """The reads that do not follow a statement in its own block."""
    table, number = locate(stmt)
    start, end = table.ends[number], table.ends[number_of(module.body(stmt)[-1])]
    return [read for read in reads if not start <= read < end]


def _relevant_nodes(
    module: Module, function: Function, reads: list[int], exits: list[ast.stmt]
) -> set[ast.AST]:
    """The nodes that read or bind one of the names, or exit, with all nodes around them."""
    nodes: list[Any] = locate(function)[0].nodes
    marks: list[Any] = [nodes[number] for number in reads]
    names = {name.id for name in marks}
    marks += [node for node, name in binders(function) if name in names]
    marks += exits
    relevant: set[ast.AST] = set()
    for mark in marks:
        node = mark
        while node not in relevant and node is not function:
            relevant.add(node)
            node = module.parents[node]
    return relevant


@record
class _ReadWalk:
    """One role's walk through a function; ``bound`` sets are passed along, never changed."""

    module: Module
    reads: list[int]  # numbers of the reads to look at
    relevant: set[ast.AST]
    role: Role
    failing: list[ast.Name]  # the result

    def block(self, body: list[ast.stmt], bound: set[str]) -> set[str] | None:
        """Names that may be bound after ``body``; None if nothing runs on after it."""
        for stmt in body:
            if stmt not in self.relevant:
                continue
            after = self.statement(stmt, bound)
            if after is None:
                return None
            bound = after
        return bound

    def expression(self, node: ast.AST, bound: set[str]) -> None:
        """Record the failing reads in an expression."""
        bound = bound | bound_names(node) if everywhere(node, ast.NamedExpr) else bound
        table, start = locate(node)
        first, last = (bisect_left(self.reads, end) for end in (start, table.ends[start]))
        nodes: list[Any] = table.nodes
        for name in map(nodes.__getitem__, self.reads[first:last]):
            if (
                name.id not in bound
                and not self._comprehension_name(name, node)
                and name not in self.failing
            ):
                self.failing.append(name)

    def _comprehension_name(self, name: ast.Name, top: ast.AST) -> bool:
        return any(
            name.id in bound_names(part.target) for part in everywhere(top, ast.comprehension)
        )

    def statement(self, stmt: ast.stmt, bound: set[str]) -> set[str] | None:
        """Names that may be bound after a statement; None if nothing runs on after it."""
        match stmt:
            case ast.If():
                return self._if(stmt, bound)
            case ast.For() | ast.AsyncFor() | ast.While():
                return self._loop(stmt, bound)
            case ast.Try():
                return self._try(stmt, bound)
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

    def _if(self, stmt: ast.If, bound: set[str]) -> set[str] | None:
        self.expression(stmt.test, bound)
        bound = bound | bound_names(stmt.test)  # by a walrus
        test = value_for_role(self.module, stmt.test, self.role)
        branches = [
            branch
            for branch, outcome in ((stmt.body, True), (stmt.orelse, False))
            if test is UNKNOWN or bool(test) is outcome
        ]
        return merge([self.block(branch, bound) for branch in branches])

    def _loop(self, stmt: ast.For | ast.AsyncFor | ast.While, bound: set[str]) -> set[str] | None:
        head = stmt.test if isinstance(stmt, ast.While) else stmt.iter
        self.expression(head, bound)
        bound = bound | bound_names(head)
        inside = bound | (set() if isinstance(stmt, ast.While) else bound_names(stmt.target))
        # After the loop, names from any iteration and any branch of this role may be bound.
        carried = inside | self._names_that_may_be_bound(stmt.body)
        self.block(stmt.body, inside)
        return self.block(stmt.orelse, bound | carried)

    def _try(self, stmt: ast.Try, bound: set[str]) -> set[str] | None:
        inner = self.block(stmt.body, bound)
        during = bound | self._names_that_may_be_bound(stmt.body)
        ends = [None if inner is None else self.block(stmt.orelse, inner)]
        for handler in stmt.handlers:
            names = {handler.name} if handler.name else set()
            ends.append(self.block(handler.body, during | names))
        end = merge(ends)
        final = self.block(stmt.finalbody, during if end is None else end)
        return None if end is None else final

    def _names_that_may_be_bound(self, body: list[ast.stmt]) -> set[str]:
        """Names bound anywhere in ``body``, except in branches that this role never takes."""
        names: set[str] = set()
        for stmt in body:
            if stmt not in self.relevant:
                continue
            if isinstance(stmt, ast.If):
                test = value_for_role(self.module, stmt.test, self.role)
                if test is UNKNOWN or test:
                    names |= self._names_that_may_be_bound(stmt.body)
                if test is UNKNOWN or not test:
                    names |= self._names_that_may_be_bound(stmt.orelse)
            elif isinstance(stmt, ast.For | ast.While | ast.With):
                names |= bound_names(stmt) - bound_names(stmt.body) | self._names_that_may_be_bound(
                    stmt.body
                )
            elif isinstance(stmt, ast.Try):
                parts = [stmt.body, stmt.orelse, stmt.finalbody, *(h.body for h in stmt.handlers)]
                names |= set().union(*(self._names_that_may_be_bound(part) for part in parts))
            else:
                names |= bound_names(stmt)
        return names


def merge(ends: list[set[str] | None]) -> set[str] | None:
    """Names that may be bound where several paths meet; None if no path gets there."""
    reaching = [end for end in ends if end is not None]
    return set().union(*reaching) if reaching else None
