"""Code that runs before the process group exists or behind its end, where nobody has a rank."""

from __future__ import annotations

import ast

from ...source.branches import exclusive
from ...source.module import Module
from ...source.tree import Function, precedes, within
from ..language.call_graph import reachable_functions
from ..language.names import answered_once, calls_at_import
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
    for module in modules_before_group(program):
        calls = [each for each in calls_at_import(module) if program.is_called(module, each)]
        names = {module.last_name(call.func) for call in calls}
        early_functions |= reachable_functions(program, names)
    return group_calls, early_functions


@answered_once
def modules_before_group(program: Program) -> set[Module]:
    """The modules that are imported at the head of another one, before a group is made."""
    groups = program.calls_to("init_process_group")
    imported = {
        part
        for module in program.modules
        for stmt in imports_of(module)
        if module.function(stmt) is None
        and all(_is_behind(module, stmt, *group) for group in groups)
        for part in names_of_import(stmt)
    }
    paths = {
        module: module.source.path for module in program.modules if module is not program.script
    }
    return {
        module
        for module, path in paths.items()
        if groups and (path.parent.name if path.stem == "__init__" else path.stem) in imported
    }


def imports_of(module: Module) -> list[ast.Import | ast.ImportFrom]:
    return [*module.nodes(ast.Import), *module.nodes(ast.ImportFrom)]


def names_of_import(stmt: ast.Import | ast.ImportFrom) -> set[str]:
    """The parts of the names that an import statement mentions: ``from a.b import c``."""
    whole = (stmt.module or "") if isinstance(stmt, ast.ImportFrom) else ""
    return {
        part for full in (whole, *(each.name for each in stmt.names)) for part in full.split(".")
    }


def _is_behind(module: Module, stmt: ast.stmt, where: Module, call: ast.Call) -> bool:
    """Whether a group is made behind a statement: in a function, or below in the same module."""
    return where.function(call) is not None or (where is module and precedes(stmt, call))


def runs_before_group(program: Program, module: Module, node: ast.AST) -> bool:
    """Whether a node is in code that runs before the group is made, if one is made."""
    group_calls, early_functions = code_before_group(program)
    function = module.function(node)
    calls = group_calls.get((module, function))
    if function is None and module in modules_before_group(program):
        return True
    return _is_before(node, calls) if calls else function in early_functions


def _is_before(node: ast.AST, calls: list[ast.Call]) -> bool:
    """Whether each of the calls is below a node on the same way, not on another branch."""
    return all(precedes(node, call) and not exclusive(node, call) for call in calls)


def place_behind_group(
    program: Program, module: Module, node: ast.AST
) -> tuple[Module, ast.AST] | None:
    """The node, or what leads to it, that stands behind the end of the group; None if nothing."""
    ends = program.calls_to("destroy_process_group")
    pending: list[tuple[Module, ast.AST]] = [(module, node)] if ends else []
    seen: set[Function] = set()
    while pending:
        where, place = pending.pop()
        function = where.function(place)
        for home, end in ends:
            is_above = home is where and home.function(end) is function and precedes(end, place)
            if is_above and not exclusive(end, place):
                return where, place
        if function is not None and function not in seen:
            seen.add(function)
            pending += program.callers(function)
    return None
