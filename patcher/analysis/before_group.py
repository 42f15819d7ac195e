"""Code that runs before the process group exists, where no process has a rank yet."""

from __future__ import annotations

import ast

from ..source.module import Module
from ..source.tree import Function, precedes, within
from .call_graph import reachable_functions
from .names import answered_once
from .program import Program

Place = tuple[Module, Function | None]


@answered_once
def code_before_group(program: Program) -> tuple[dict[Place, ast.Call], set[Function]]:
    """The call up to which each function has no process group, and functions called before it."""
    group_calls: dict[Place, ast.Call] = {}
    early_functions: set[Function] = set()
    pending = program.calls_to("init_process_group")
    while pending:
        module, call = pending.pop()
        function = module.function(call)
        if (module, function) in group_calls:
            continue
        group_calls[module, function] = call
        names = {
            module.last_name(other.func)
            for other in within(module.scope_statements(call), ast.Call)
            if precedes(other, call)
        }
        early_functions |= reachable_functions(program, names)
        if function is not None:
            pending += program.callers(function)
    return group_calls, early_functions


def runs_before_group(program: Program, module: Module, node: ast.AST) -> bool:
    """Whether a node is in code that runs before the group is made, if one is made."""
    group_calls, early_functions = code_before_group(program)
    function = module.function(node)
    call = group_calls.get((module, function))
    if call is not None:
        return precedes(node, call)
    return function in early_functions
