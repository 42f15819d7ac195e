"""Whether code changes the database of sqlite3 that it opens, by the SQL that stands in it."""

from __future__ import annotations

import ast
import re

from ...source.module import Module
from ...source.tree import everywhere, is_inside

CONNECT = "sqlite3.connect"
RUNS_SQL = ("execute", "executemany", "executescript", "to_sql")
CHANGES = re.compile(r"\s*(insert|update|delete|replace|create|drop|alter)\b", re.IGNORECASE)


def changes_database(module: Module, connect: ast.Call) -> bool:
    """Whether the function around a connection changes the database, or the class that keeps it."""
    around: ast.AST | None = module.function(connect)
    stmt = module.statement(connect)
    targets = stmt.targets if isinstance(stmt, ast.Assign) else []
    if any(isinstance(target, ast.Attribute) for target in targets):
        around = module.enclosing_class(connect) or around
    return any(
        changes(module, call)
        for call in module.calls_to(*RUNS_SQL)
        if around is None or is_inside(call, around)
    )


def changes(module: Module, call: ast.Call) -> bool:
    """Whether a call runs SQL that changes a table; pandas' ``to_sql`` does."""
    if module.last_name(call.func) == "to_sql":
        return True
    if not call.args:
        return False
    texts = [call.args[0], *module.alternatives(call.args[0], call.args[0])]
    firsts = (next(iter(everywhere(each, ast.Constant)), None) for each in texts)
    return any(
        first is not None and isinstance(first.value, str) and CHANGES.match(first.value)
        for first in firsts
    )
