"""Statements that end the process."""

from __future__ import annotations

import ast

from ...source.module import Module

EXITS = ("sys.exit", "exit", "quit", "os._exit", "SystemExit")


def exit_call(module: Module, stmt: ast.stmt) -> ast.Call | None:
    """The call of ``sys.exit(main())``, ``quit()`` or ``raise SystemExit(1)``; else None."""
    value = stmt.exc if isinstance(stmt, ast.Raise) else getattr(stmt, "value", None)
    is_exit = isinstance(value, ast.Call) and module.dotted(value.func) in EXITS
    return value if is_exit and isinstance(value, ast.Call) else None


def ends_well(module: Module, stmt: ast.stmt) -> bool:
    """Whether a statement ends the process with status 0, which stops no other rank."""
    if isinstance(stmt, ast.Raise) and isinstance(stmt.exc, ast.Name):
        return stmt.exc.id == "SystemExit"
    call = exit_call(module, stmt)
    if call is None:
        return False
    statuses = [each.value if isinstance(each, ast.Constant) else each for each in call.args]
    return statuses in ([], [0], [None])
