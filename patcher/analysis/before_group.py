"""Code that runs before the process group exists, where no process has a rank yet."""

from __future__ import annotations

import ast

from ..source.module import Module
from ..source.tree import Function, precedes, within
from .call_graph import reachable_functions
from .program import Program

Place = tuple[Module, Function | None]


def code_before_group(program: Program) -> tuple[dict[Place, int], set[Function]]:
    """The line up to which each function has no process group, and functions called before it."""
    group_lines: dict[Place, int] = {}
    early_functions: set[Function] = set()
    pending = program.calls_to("init_process_group")
    while pending:
        module, call = pending.pop()
        function = module.function(call)
        if (module, function) in group_lines:
            continue
        group_lines[module, function] = call.lineno
        names = {
            module.last_name(other.func)
            for other in within(module.scope_statements(call), ast.Call)
            if precedes(other, call)
        }
        early_functions |= reachable_functions(program, names)
        if function is not None:
            pending += program.callers(function)
    return group_lines, early_functions


def runs_before_group(program: Program, module: Module, node: ast.AST) -> bool:
    """Whether a node is in code that runs before the group is made, if one is made."""
    group_lines, early_functions = code_before_group(program)
    function = module.function(node)
    line = group_lines.get((module, function))
    if line is not None:
        return getattr(node, "lineno", line) < line
    return function in early_functions
