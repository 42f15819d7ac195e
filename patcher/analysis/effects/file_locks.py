"""Code that processes run one after the other, because each holds a lock of the file system."""

from __future__ import annotations

import ast

from ...source.module import Module
from ..ranks.rank_0_ahead import comes_behind_rank_0
from ..training.program import Program
from .written_paths import values_of

# Of filelock, whose copies datasets and transformers have, and of fasteners.
LOCKS = ("FileLock", "SoftFileLock", "UnixFileLock", "InterProcessLock")
MAX_DEPTH = 3  # calls above the place


def holds_file_lock(program: Program, module: Module, node: ast.AST, depth: int = 0) -> bool:
    """Whether a place is inside ``with FileLock(…)``, there or at each call of its function.

    Or where the others find the file that rank 0 has made ahead of them.
    """
    if depth == 0 and comes_behind_rank_0(program, module, node, if_missing=True):
        return True
    if any(
        _is_lock(module, item.context_expr)
        for up in module.ancestors(node)
        if isinstance(up, ast.With)
        for item in up.items
    ):
        return True
    function = module.function(node)
    if function is None or depth == MAX_DEPTH:
        return False
    callers = program.callers(function)
    return bool(callers) and all(
        holds_file_lock(program, where, call, depth + 1) for where, call in callers
    )


def _is_lock(module: Module, context: ast.expr) -> bool:
    """``FileLock(path)``, a name of one, or either's ``acquire()``."""
    if isinstance(context, ast.Call) and module.last_name(context.func) == "acquire":
        context = context.func.value if isinstance(context.func, ast.Attribute) else context
    values = [context, *values_of(module, context)]
    if isinstance(context, ast.Name) and not values[1:]:
        values += [value for value in [module.single_assignment(None, context.id)] if value]
    return any(
        isinstance(value, ast.Call) and module.last_name(value.func) in LOCKS for value in values
    )
