"""A collective that some ranks never reach.

What         A barrier, an all-reduce or a gather, or a function that surely calls one, under a
             test or behind an exit that only some ranks pass. Barriers that rank 0 and the others
             each pass once ("rank 0 first") are a pair and fine.
At run time  The ranks that arrive wait for the others until the time-out, then the job dies.
Example      if args.local_rank == 0: torch.distributed.barrier()   # and no other barrier
Fix          None by itself: let every rank reach it, or none.
Fix safety   Report only: which of the two is meant cannot be told.
Source       https://docs.pytorch.org/docs/stable/distributed.html#collective-functions
"""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator

from ..facts import Unit
from ..findings import Finding, Safety, Severity
from ..module import Module
from ..roles import RANKS, Role, reached, reached_in_function
from ..syntax import Function

CODE, SEVERITY, SAFETY = "DF506", Severity.ERROR, Safety.REPORT

COLLECTIVES = (
    "barrier",
    "monitored_barrier",
    "all_reduce",
    "all_gather",
    "all_gather_object",
    "all_gather_into_tensor",
    "broadcast",
    "broadcast_object_list",
    "reduce",
    "reduce_scatter",
    "gather_object",
    "scatter_object_list",
)


def findings(unit: Unit) -> Iterator[Finding]:
    carriers = collective_functions(unit)
    for module in unit.modules:
        per_scope: dict[Function | None, list[ast.Call]] = defaultdict(list)
        for call in collective_calls(module, carriers):
            per_scope[module.function(call)].append(call)
        for scope, calls in per_scope.items():
            # What a function does for all who enter it is reported where it is called.
            calls = [
                call
                for call in calls
                if scope is None
                or not unit.callers(scope)
                or not reached_in_function(module, call) >= RANKS
            ]
            lonely = {call: reached(unit, module, call) & RANKS for call in calls}
            lonely = {call: roles for call, roles in lonely.items() if len(roles) == 1}
            barriers = [c for c in lonely if module.dotted(c.func).endswith("barrier")]
            count = Counter(next(iter(lonely[c])) for c in barriers)
            paired = set(barriers) if count[Role.MAIN] == count[Role.OTHER] else set()
            for call, roles in lonely.items():
                if call not in paired:
                    (role,) = roles
                    yield Finding(module, call, f"only {role.value} can reach it")


def collective_calls(module: Module, carriers: set[str]) -> list[ast.Call]:
    """Calls of torch.distributed's collectives and of functions that surely run one."""
    direct = [
        call
        for call in module.calls_to(*COLLECTIVES)
        if module.dotted(call.func).startswith(("torch.distributed.", "dist."))
    ]
    return direct + [call for call in module.calls_to(*carriers) if isinstance(call.func, ast.Name)]


def collective_functions(unit: Unit) -> set[str]:
    """Functions in which every rank of a group reaches a collective, found to a fixed point."""
    carriers: set[str] = set()
    while True:
        found = {
            function.name
            for module in unit.modules
            for call in collective_calls(module, carriers)
            for function in [module.function(call)]
            if function is not None
            and reached_in_function(module, call) >= RANKS
            and is_certain(module, call, function)
        }
        if found <= carriers:
            return carriers
        carriers |= found


def is_certain(module: Module, call: ast.Call, function: Function) -> bool:
    """Whether every rank that enters the function passes the call."""
    for parent in module.ancestors(call):
        if parent is function:
            return True
        if isinstance(parent, ast.If) and not mentions_group(module, parent.test):
            return False
        if isinstance(parent, ast.For | ast.While | ast.Try | ast.IfExp):
            return False
    return False


def mentions_group(module: Module, test: ast.expr) -> bool:
    """``if torch.distributed.is_initialized():``."""
    return isinstance(test, ast.Call) and module.dotted(test.func).endswith("is_initialized")
