"""Code that runs before the process group exists, where no process has a rank yet."""

from __future__ import annotations

import ast

from ...source.branches import exclusive
from ...source.module import Module
from ...source.tree import Function, precedes, within
from ..language.call_graph import reachable_functions
from ..language.names import answered_once
from ..training.program import Program

Place = tuple[Module, Function | None]


@answered_once
def code_before_group(program: Program) -> tuple[dict[Place, list[ast.Call]], set[Function]]:
    """The calls up to which a function has no process group, and functions called before them."""
    group_calls: dict[Place, list[ast.Call]] = {}
    pending = program.calls_to("init_process_group")
    while pending:
        module, call = pending.pop()
        function = module.function(call)
        if function is not None and (module, function) not in group_calls:
            pending += program.callers(function)
        group_calls.setdefault((module, function), []).append(call)
    early_functions: set[Function] = set()
    for (module, _), calls in group_calls.items():
        names = {
            module.last_name(other.func)
            for other in within(module.scope_statements(calls[0]), ast.Call)
            if _is_before(other, calls)
        }
        early_functions |= reachable_functions(program, names)
    return group_calls, early_functions


def runs_before_group(program: Program, module: Module, node: ast.AST) -> bool:
    """Whether a node is in code that runs before the group is made, if one is made."""
    group_calls, early_functions = code_before_group(program)
    function = module.function(node)
    calls = group_calls.get((module, function))
    return _is_before(node, calls) if calls else function in early_functions


def _is_before(node: ast.AST, calls: list[ast.Call]) -> bool:
    """Whether each of the calls is below a node on the same way, not on another branch."""
    return all(precedes(node, call) and not exclusive(node, call) for call in calls)
