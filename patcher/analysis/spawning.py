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
