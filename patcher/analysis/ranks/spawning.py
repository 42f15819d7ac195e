"""Scripts that start their own ranks, which no launcher may start as well."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ...source.branches import exclusive, is_in
from ...source.module import Module
from ...source.tree import (
    FUNCTIONS,
    Function,
    argument,
    everywhere,
    first_parameter,
    is_inside,
    keyword,
    mentions,
    parameters,
    precedes,
)
from ..language.call_graph import reachable_functions
from ..language.names import answered_once
from ..language.passed_arguments import argument_for_parameter
from ..training.program import Program
from .rank_values import values_by_role
from .roles import ALL_UNKNOWN, UNKNOWN

SPAWNING = ("spawn", "start_processes", "Process")
COMMANDS = ("Popen", "run", "call", "check_call")
GROUP = "init_process_group"
PACKAGES = ("torch.multiprocessing", "multiprocessing")


def spawned_ranks(program: Program) -> Iterator[tuple[Module, ast.Call]]:
    """Calls that start processes of which each joins a process group."""
    groups = [
        function
        for module, call in program.calls_to(GROUP)
        for function in [module.function(call)]
        if function is not None
    ]
    for module, call in program.calls_to(*SPAWNING):
        worker = argument(
            call, 1 if module.last_name(call.func) == "Process" else 0, "fn", "target"
        )
        if worker is None or not module.dotted(call.func).startswith(PACKAGES):
            continue
        if is_left_out_by_launchers(module, call):
            continue
        passed = keyword(call, "args")  # the worker may call a function that it gets
        workers = [module.last_name(worker), *functions_in(program, module, worker)]
        workers += [] if passed is None else functions_in(program, module, passed.value)
        if any(
            reachable_functions(program, {name}) & set(groups) for name in dict.fromkeys(workers)
        ):
            yield module, call
    yield from started_anew(program)


def is_left_out_by_launchers(module: Module, node: ast.AST) -> bool:
    """Whether a test of the environment, around a place or above it, keeps launchers away."""
    child = node
    for up in module.ancestors(node):
        if (
            isinstance(up, ast.If)
            and child is not up.test
            and is_for_ranks(module, up.test, not any(child is each for each in up.body))
        ):
            return True
        if isinstance(child, ast.stmt) and any(
            isinstance(each, ast.If)
            and isinstance(each.body[-1], ast.Return | ast.Raise)
            and is_for_ranks(module, each.test, True)
            for each in module.body(child)
            if precedes(each, child)
        ):
            return True
        if isinstance(up, FUNCTIONS):
            break
        child = up
    return False


def is_for_ranks(module: Module, test: ast.expr, answer: bool) -> bool:
    """Whether all ranks of a launcher give this answer to a test of the environment."""
    asks = mentions(test, "environ") or mentions(test, "getenv")
    asks |= mentions(test, "is_torchelastic_launched")
    _, main, other = values_by_role(module, test) if asks else ALL_UNKNOWN
    return asks and all(value is not UNKNOWN and bool(value) is answer for value in (main, other))


def started_anew(program: Program) -> Iterator[tuple[Module, ast.Call]]:
    """Calls in a loop that start this script once more: ``Popen([sys.executable, *sys.argv])``."""
    for module, call in program.calls_to(*COMMANDS) if program.calls_to(GROUP) else ():
        if not module.dotted(call.func).startswith("subprocess.") or not call.args:
            continue
        if not any(isinstance(up, ast.For | ast.While) for up in module.ancestors(call)):
            continue
        parts = [call.args[0], *names_of_commands(module, call.args[0])]
        words = {
            module.dotted(each)
            for part in parts
            for each in (*everywhere(part, ast.Attribute), *everywhere(part, ast.Name))
        }
        is_script = "sys.executable" in words and bool(words & {"sys.argv", "__file__"})
        if is_script and program.is_live(module, call):
            yield module, call


def names_of_commands(module: Module, command: ast.expr) -> Iterator[ast.expr]:
    """What the names in a command hold, and what those hold."""
    for name in everywhere(command, ast.Name):
        for value in module.alternatives(name, name):
            yield value
            for inner in everywhere(value, ast.Name):
                if inner.id != name.id:
                    yield from module.alternatives(inner, inner)


def functions_in(program: Program, module: Module, node: ast.expr) -> Iterator[str]:
    """The functions of the program in an expression, by name; a parameter is what callers pass."""
    for name in everywhere(node, ast.Name):
        function = module.function(name)
        places: list[tuple[Module, ast.expr | None]] = [(module, name)]
        if function is not None and name.id in parameters(function):
            places = [
                (where, argument_for_parameter(module, function, call, name.id))
                for where, call in program.callers(function)
            ]
        for where, value in places:
            found = None if value is None else program.resolve(where, value)
            if found is not None and isinstance(found[1], FUNCTIONS):
                yield found[1].name


@answered_once
def starting_calls(program: Program) -> set[ast.Call]:
    """The calls that start processes of which each joins a process group."""
    return {call for _, call in spawned_ranks(program)}


@answered_once
def starters_of_ranks(program: Program) -> set[Function | ast.If]:
    """Functions that start the program's ranks: what they run else, one process does.

    So is what stands under ``if __name__ == "__main__":``, where that starts them, and what calls
    such a function. Not where a test starts them, and a rank of a launcher may come to the other
    branch.
    """
    starters: set[Function | ast.If] = set()
    pending = [
        scope
        for module, call in spawned_ranks(program)
        for scope in [scope_of(module, call)]
        if scope is not None
        and (always_runs(module, scope, call) or works_alone(program, module, call))
    ]
    while pending:
        scope = pending.pop()
        if scope in starters:
            continue
        starters.add(scope)
        for module, call in () if isinstance(scope, ast.If) else program.callers(scope):
            caller = scope_of(module, call)
            if caller is not None and always_runs(module, caller, call):
                pending.append(caller)
    return starters


def works_without_group(program: Program, module: Module, place: ast.AST) -> bool:
    """Whether a test leaves a place to one process, as its other branch starts the ranks.

    ``if cards > 1: spawn(train_in_group, …) else: train(…)``, where ``train`` makes no group. A
    rank of a launcher may come to an ``else`` that runs what is started elsewhere, too.
    """
    for start in starting_calls(program):
        if start in module.parents and exclusive(start, place):
            test = next(
                up
                for up in module.ancestors(place)
                if isinstance(up, ast.If | ast.IfExp) and is_inside(start, up)
            )
            branches = [
                branch if isinstance(branch, list) else [branch]
                for branch in (test.body, test.orelse)
            ]
            own = next(branch for branch in branches if any(is_in(place, each) for each in branch))
            return not makes_group(program, module, own)
    return False


def makes_group(program: Program, module: Module, block: Iterable[ast.AST]) -> bool:
    """Whether code makes a process group, or calls a function that does."""
    calls = [call for node in block for call in everywhere(node, ast.Call)]
    names = {module.last_name(call.func) for call in calls}
    groups = {where.function(call) for where, call in program.calls_to(GROUP)}
    return GROUP in names or bool(reachable_functions(program, names) & groups)


def scope_of(module: Module, node: ast.AST) -> Function | ast.If | None:
    """The function around a node, or at module level the ``if __name__ == "__main__":``.

    A started process imports the module, and runs what stands there under no such test.
    """
    function = module.function(node)
    if function is not None:
        return function
    for guard in module.ancestors(node):
        if isinstance(guard, ast.If) and mentions(guard.test, "__name__"):
            return guard
    return None


def is_started(program: Program, module: Module, place: ast.AST) -> bool:
    """Whether a function is passed to what starts the program's ranks."""
    calls = starting_calls(program)
    return bool(calls) and any(up in calls for up in module.ancestors(place))


def is_started_beside_launchers(module: Module, place: ast.AST) -> bool:
    """Whether a function is passed to what starts processes, where no launcher has started any."""
    return any(
        isinstance(up, ast.Call) and module.last_name(up.func) in SPAWNING
        for up in module.ancestors(place)
    ) and is_left_out_by_launchers(module, place)


def always_runs(module: Module, scope: Function | ast.If, call: ast.Call) -> bool:
    """Whether no test in a function, or under ``__main__``, stands around a call."""
    tests = (ast.If, ast.IfExp, ast.While, ast.Match)
    return not any(
        isinstance(up, tests) and up is not scope and is_inside(up, scope)
        for up in module.ancestors(call)
    )


def works_alone(program: Program, module: Module, start: ast.Call) -> bool:
    """``worker(0, …)`` where a test does not start processes that run the worker."""
    worker = argument(start, 0, "fn")
    if worker is None:
        return False
    found = program.resolve(module, worker)
    number = first_parameter(found[1]) if found and isinstance(found[1], FUNCTIONS) else ""
    first = [
        argument(call, 0, number)
        for call in module.calls_to(module.last_name(worker))
        if scope_of(module, call) is scope_of(module, start) and call is not start
    ]
    return bool(first) and all(isinstance(each, ast.Constant) for each in first)


def is_spawned_number(program: Program, module: Module, node: ast.expr) -> bool:
    """Whether a name is the number that ``spawn`` passes to each process, which no launcher has."""
    function = module.function(node)
    if function is None or not isinstance(node, ast.Name):
        return False
    return first_parameter(function) == node.id and any(
        isinstance(place := where.parents[use], ast.Call)
        and where.last_name(place.func) in ("spawn", "start_processes")
        and use is argument(place, 0, "fn")
        for where, use in program.possible_callers(function)
    )
