"""Scripts that start their own ranks, which no launcher may start as well."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.module import Module
from ..source.tree import argument
from .call_graph import reachable_functions
from .program import Program

SPAWNING = ("spawn", "start_processes", "Process")
PACKAGES = ("torch.multiprocessing", "multiprocessing")


def spawned_ranks(program: Program) -> Iterator[tuple[Module, ast.Call]]:
    """Calls that start processes of which each joins a process group."""
    groups = [
        function
        for module, call in program.calls_to("init_process_group")
        for function in [module.function(call)]
        if function is not None
    ]
    for module, call in program.calls_to(*SPAWNING):
        worker = argument(
            call, 1 if module.last_name(call.func) == "Process" else 0, "fn", "target"
        )
        if worker is None or not module.dotted(call.func).startswith(PACKAGES):
            continue
        name = module.last_name(worker)
        if name and reachable_functions(program, {name}) & set(groups):
            yield module, call


def is_spawned_number(program: Program, module: Module, node: ast.expr) -> bool:
    """Whether a name is the number that ``spawn`` passes to each process, which no launcher has."""
    function = module.function(node)
    if function is None or not isinstance(node, ast.Name):
        return False
    first = [*function.args.posonlyargs, *function.args.args][:1]
    return [each.arg for each in first] == [node.id] and any(
        isinstance(place := where.parents[use], ast.Call)
        and where.last_name(place.func) in ("spawn", "start_processes")
        and use is argument(place, 0, "fn")
        for where, use in program.possible_callers(function)
    )
