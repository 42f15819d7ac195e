"""Statements that end the process."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import keyword

EXITS = ("sys.exit", "exit", "quit", "os._exit", "SystemExit")
RUNNERS = ("typer.run", "absl.app.run", "tensorflow.app.run", "tensorflow.compat.v1.app.run")
COMMANDS = ("command", "group")  # decorators of click and typer


def exit_call(module: Module, stmt: ast.stmt) -> ast.Call | None:
    """The call of ``sys.exit(main())``, ``quit()`` or ``raise SystemExit(1)``; else None."""
    value = stmt.exc if isinstance(stmt, ast.Raise) else getattr(stmt, "value", None)
    is_exit = isinstance(value, ast.Call) and module.dotted(value.func) in EXITS
    return value if is_exit and isinstance(value, ast.Call) else None


def runs_command(module: Module, stmt: ast.stmt) -> bool:
    """Whether a statement runs a command that ends the process itself, as click's do.

    ``main()`` of ``@click.command()``, ``typer.run(main)``, ``app()`` and absl's ``app.run(main)``.
    """
    call = stmt.value if isinstance(stmt, ast.Expr) else None
    if not isinstance(call, ast.Call) or keyword(call, "standalone_mode") is not None:
        return False
    if module.dotted(call.func) in RUNNERS:
        return True
    if not isinstance(call.func, ast.Name):
        return False
    made = module.definition(call.func, call.func)
    if isinstance(made, ast.Call):
        return module.dotted(made.func) == "typer.Typer"
    function = module.functions.get(call.func.id)
    decorators = [] if function is None else function.decorator_list
    makers = [each.func if isinstance(each, ast.Call) else each for each in decorators]
    return any(module.last_name(each) in COMMANDS for each in makers)


def ends_well(module: Module, stmt: ast.stmt) -> bool:
    """Whether a statement ends the process with status 0, which stops no other rank."""
    if isinstance(stmt, ast.Raise) and isinstance(stmt.exc, ast.Name):
        return stmt.exc.id == "SystemExit"
    call = exit_call(module, stmt)
    if call is None:
        return False
    statuses = [each.value if isinstance(each, ast.Constant) else each for each in call.args]
    return statuses in ([], [0], [None])
