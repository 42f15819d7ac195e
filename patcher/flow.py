"""Names that a role may read before it bound them.

May-assignment, walked once per role: a name is reported only where no path of that role can have
bound it, while a lone process may have. Branches that a role cannot take are not walked.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .module import Module
from .record import record
from .roles import UNKNOWN, Role, value
from .syntax import Function, bound_names, everywhere, parameters, walk


@record
class Unbound:
    """A read of ``name`` that finds nothing bound."""

    name: ast.Name
    role: Role


def unbound_reads(
    module: Module, function: Function, names: set[str] | None = None
) -> Iterator[Unbound]:
    """Reads in ``function``, of ``names`` or of any, that fail on some rank and not alone."""
    outer = {
        name
        for node in walk(function.body)
        if isinstance(node, ast.Global | ast.Nonlocal)
        for name in node.names
    }
    local = bound_names(function.body) - outer
    local = local if names is None else local & names
    given = parameters(function)
    alone = set(_reads(module, function, local, given, Role.SINGLE))
    seen: set[ast.Name] = set()
    for role in (Role.MAIN, Role.OTHER):
        for read in _reads(module, function, local, given, role):
            if read not in alone and read not in seen:
                seen.add(read)
                yield Unbound(read, role)


def _reads(
    module: Module, function: Function, local: set[str], bound: set[str], role: Role
) -> list[ast.Name]:
    reads: list[ast.Name] = []
    _Walk(module, local, role, reads).block(function.body, set(bound))
    return reads


@record
class _Walk:
    """One role's way through a function; ``bound`` sets are passed along, never kept."""

    module: Module
    local: set[str]
    role: Role
    reads: list[ast.Name]

    def block(self, body: list[ast.stmt], bound: set[str]) -> set[str] | None:
        """What may be bound behind ``body``; None when nothing runs on behind it."""
        for stmt in body:
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
                return join([self.block(way, set(bound)) for way in ways])
            case ast.For() | ast.AsyncFor() | ast.While():
                head = stmt.test if isinstance(stmt, ast.While) else stmt.iter
                self.expression(head, bound)
                inside = bound | (
                    set() if isinstance(stmt, ast.While) else set(self.module.names(stmt.target)[1])
                )
                # A later round may read what an earlier one bound, in any branch this role takes.
                carried = inside | self._taken(stmt.body)
                self.block(stmt.body, set(inside))
                return self.block(stmt.orelse, bound | carried)
            case ast.Try():
                inner = self.block(stmt.body, set(bound))
                during = bound | self._taken(stmt.body)
                ends = [None if inner is None else self.block(stmt.orelse, inner)]
                for handler in stmt.handlers:
                    names = {handler.name} if handler.name else set()
                    ends.append(self.block(handler.body, during | names))
                end = join(ends)
                final = self.block(stmt.finalbody, set(during if end is None else end))
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
