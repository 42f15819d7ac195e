"""Imports in functions that would hide a module from the code that edits bring into them.

``import os`` anywhere in a function makes ``os`` a local variable in all of it, so that code above
it that uses the module would find it unbound. The module gets the import instead.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from ..source.module import Module
from ..source.tree import Function, position
from .edits import Edit, Enter, Guard, Import, Insert, Replace, Rewrite
from .regions import has_own_line


def hoist_local_imports(module: Module, edits: Sequence[Edit]) -> list[Edit]:
    """Edits that move such imports to module level, for functions that ``edits`` bring code to."""
    hoisted: list[Edit] = []
    anchors = {anchor for anchor, _ in anchored_code(module, edits)}
    replaced = {edit.anchor for edit in edits if isinstance(edit, Replace)}
    for anchor, code in anchored_code(module, edits):
        for stmt in local_imports(module, anchor):
            name = stmt.names[0].name
            if not re.search(rf"\b{name}\.", code) or stmt in anchors:
                continue
            if replaced & {*module.ancestors(stmt)} or not has_own_line(module.lines, stmt):
                continue
            if position(stmt) < position(anchor) and stmt in module.scope_statements(anchor):
                continue  # bound already
            alone = module.body(stmt) == [stmt]
            hoisted += [Replace(stmt, "pass" if alone else ""), Import(name)]
    return hoisted


def anchored_code(module: Module, edits: Sequence[Edit]) -> Iterator[tuple[ast.stmt, str]]:
    """The statement at which each edit brings code, and the code."""
    for edit in edits:
        match edit:
            case Insert(anchor=anchor, code=code) | Replace(anchor=anchor, code=code):
                yield anchor, code
            case Guard(anchor=anchor, test=test, orelse=orelse):
                yield anchor, f"{test}\n{orelse}"
            case Enter(anchor=anchor, manager=manager):
                yield anchor, manager
            case Rewrite(first=first, code=code):
                yield module.statement(first), code


def local_imports(module: Module, anchor: ast.stmt) -> list[ast.Import]:
    """The ``import name`` statements of the function around a statement."""
    function = anchor if isinstance(anchor, Function) else module.function(anchor)
    return [
        stmt
        for stmt in module.nodes(ast.Import)
        if function is not None
        and module.function(stmt) is function
        and len(stmt.names) == 1
        and stmt.names[0].asname is None
        and "." not in stmt.names[0].name
    ]
