"""Names that a role may read before it bound them.

May-assignment, walked once per role: a name is reported only where no path of that role can have
bound it, while a lone process may have. Branches that a role cannot take are not walked.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..record import record
from .module import Module
from .roles import ROLES, UNKNOWN, Role, value
from .syntax import Function, binders, bound_names, everywhere, parameters, place, within

LEAVING: tuple[type[ast.stmt], ...] = (ast.Return, ast.Raise, ast.Break, ast.Continue)


@record
class Unbound:
    """A read of ``name`` that finds nothing bound."""

    name: ast.Name
    role: Role


def unbound_reads(
    module: Module, function: Function, names: set[str] | None = None
) -> Iterator[Unbound]:
    """Reads in ``function``, of ``names`` or of any, that fail on some rank and not alone."""
    ways = {role: _way(module, function, role) for role in ROLES}
    if all(way == ways[Role.SINGLE] for way in ways.values()):
        return
    outer = {name for node in within(function.body, ast.Global) for name in node.names}
    outer |= {name for node in within(function.body, ast.Nonlocal) for name in node.names}
    local = bound_names(function.body) - outer
    local = local if names is None else local & names
    given = parameters(function)
    local -= given | _settled(module, function, local)
    if not local:
        return
    relevant = _relevant(module, function, local)

    def reads_of(role: Role) -> list[ast.Name]:
        reads: list[ast.Name] = []
        _Walk(module, local, relevant, role, reads).block(function.body, given)
        return reads

    seen: set[ast.Name] = set()
    for role in (Role.MAIN, Role.OTHER):
        if ways[role] == ways[Role.SINGLE]:
            continue  # it fails where a lone process does
        reads = reads_of(role)
        alone = set(reads_of(Role.SINGLE)) if reads else set()
        for read in reads:
            if read not in alone and read not in seen:
                seen.add(read)
                yield Unbound(read, role)


def _way(module: Module, function: Function, role: Role) -> list[bool | None]:
    """Which branch of each test in the function a role takes, None where that is not known."""
    values = (value(module, stmt.test, role) for stmt in within(function.body, ast.If))
    return [None if each is UNKNOWN else bool(each) for each in values]


def _settled(module: Module, function: Function, names: set[str]) -> set[str]:
    """Names of which every read stands behind one binding, in its block: no way leads around it."""
    reads: dict[str, list[int]] = {}
    for node in within(function.body, ast.Name):
        if node.id in names and isinstance(node.ctx, ast.Load):
            reads.setdefault(node.id, []).append(place(node)[1])
    found = names - reads.keys()
    for name, numbers in reads.items():
        stores = module.stores.get((function, name))
        stmt = module.statement(stores[0]) if stores else None
        if isinstance(stmt, ast.Assign | ast.For | ast.With):
            table, number = place(stmt)
            last = place(module.body(stmt)[-1])[1]
            head = table.ends[number] if isinstance(stmt, ast.Assign) else place(stmt.body[0])[1]
            if head <= numbers[0] and numbers[-1] < table.ends[last]:
                found.add(name)
    return found


def _relevant(module: Module, function: Function, names: set[str]) -> set[ast.AST]:
    """Statements that read or bind one of the names, or leave, and what is around them."""
    marks: list[ast.AST] = [n for n in within(function.body, ast.Name) if n.id in names]
    marks += [node for node, name in binders(function) if name in names]
    for kind in LEAVING:
        marks += within(function.body, kind)
    found: set[ast.AST] = set()
    for mark in marks:
        while mark not in found and mark is not function:
            found.add(mark)
            mark = module.parents[mark]
    return found


@record
class _Walk:
    """One role's way through a function; ``bound`` sets are passed along, never changed."""

    module: Module
    local: set[str]
    relevant: set[ast.AST]
    role: Role
    reads: list[ast.Name]

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
        for name in self.module.names(node)[0]:
            if (
                name.id in self.local
                and name.id not in bound
                and not self._comprehension_name(name, node)
                and name not in self.reads
            ):
                self.reads.append(name)

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
                    set() if isinstance(stmt, ast.While) else set(self.module.names(stmt.target)[1])
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
        return bound | self.module.names(stmt)[1]

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
                names |= self.module.names(stmt)[1]
        return names


def join(ends: list[set[str] | None]) -> set[str] | None:
    """May-bound names where several ways meet; None when none of them arrives."""
    arriving = [end for end in ends if end is not None]
    return set().union(*arriving) if arriving else None
