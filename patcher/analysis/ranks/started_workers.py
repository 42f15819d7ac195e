"""The function that a script starts once for each of its ranks, and where its numbers are from."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ....record import record
from ...source.module import Module
from ...source.tree import (
    FUNCTIONS,
    Function,
    argument,
    everywhere,
    first_parameter,
    keyword,
    mentions,
    parameters,
)
from ..language.passed_arguments import argument_for_parameter
from ..training.possible_values import Place, values_of
from ..training.program import Program

MAX_DEPTH = 8  # names between a number and where it is from
CONVERSIONS = ("int", "str")


class NotLaunchableError(Exception):
    """Why a launcher could not start the script's ranks."""


@record
class StartedWorker:
    """``stmt`` of ``module`` starts ``count`` processes, each with its number, that run a function.

    ``number`` is the name that it has in ``scope`` of ``place``: a parameter of the worker, or what
    a loop counts by. ``passed`` are the arguments, without a number that is a parameter, or a
    single starred one; ``ahead`` are the statements of a loop that a process needs, too.
    """

    module: Module
    stmt: ast.stmt
    worker: ast.expr
    home: Module
    function: Function
    number: str
    place: Module
    scope: Function | None
    count: ast.expr
    passed: tuple[ast.expr, ...]
    ahead: tuple[ast.stmt, ...] = ()

    @property
    def is_loop(self) -> bool:
        """Whether a loop starts a process each time, instead of one call all of them."""
        return isinstance(self.stmt, ast.For)

    def argument(self, name: str) -> ast.expr | None:
        """What the worker gets for a parameter that is not its number."""
        names = [arg.arg for arg in (*self.function.args.posonlyargs, *self.function.args.args)]
        index = names.index(name) - (not self.is_loop) if name in names else -1
        if index < 0 or any(isinstance(one, ast.Starred) for one in self.passed):
            return None
        return self.passed[index] if index < len(self.passed) else None


def started_worker(program: Program, module: Module, call: ast.Call) -> StartedWorker:
    """What a call that starts ranks lets each of them run. Raises NotLaunchableError if unclear."""
    if module.last_name(call.func) in ("spawn", "start_processes"):
        return started_by_spawn(program, module, call)
    if module.last_name(call.func) == "Process":
        return started_in_loop(program, module, call)
    raise NotLaunchableError("it starts itself as a command")


def started_by_spawn(program: Program, module: Module, call: ast.Call) -> StartedWorker:
    """The worker of ``torch.multiprocessing.spawn``."""
    stmt = module.statement(call)
    join = argument(call, 3, "join")
    waits = join is None or (isinstance(join, ast.Constant) and join.value is True)
    if not isinstance(stmt, ast.Expr | ast.Return) or stmt.value is not call or not waits:
        raise NotLaunchableError("the script goes on while its ranks run")
    worker, count = argument(call, 0, "fn"), argument(call, 2, "nprocs")
    if worker is None or count is None:
        raise NotLaunchableError("it starts one process")
    home, function = function_of(program, module, worker)
    number = first_parameter(function)
    if not number:
        raise NotLaunchableError(f"{module.text(worker)} takes no number")
    passed = elements(argument(call, 1, "args"))
    scope = function
    return StartedWorker(module, stmt, worker, home, function, number, home, scope, count, passed)


def started_in_loop(program: Program, module: Module, call: ast.Call) -> StartedWorker:
    """The worker of ``for rank in range(size): Process(target=worker, args=(rank,)).start()``."""
    loop = next((up for up in module.ancestors(call) if isinstance(up, ast.For)), None)
    counting = None if loop is None else loop.iter
    if (
        loop is None
        or loop.orelse
        or not isinstance(loop.target, ast.Name)
        or not isinstance(counting, ast.Call)
        or module.dotted(counting.func) != "range"
        or len(counting.args) != 1
    ):
        raise NotLaunchableError("no loop over range() starts its processes")
    worker = argument(call, 1, "target")
    if worker is None or keyword(call, "kwargs") is not None:
        raise NotLaunchableError("what each rank runs, and with what, cannot be told")
    home, function = function_of(program, module, worker)
    name, scope = loop.target.id, module.function(loop)
    if len(module.stores[scope, name]) != 1:
        raise NotLaunchableError(f"{name} counts other things, too")
    stmt = module.statement(call)
    kept: list[ast.stmt] = []
    process = {target.id for target in everywhere(stmt, ast.Name) if target in stored(stmt)}
    for each in loop.body:
        if each is stmt or any(mentions(each, one) for one in process):
            continue
        has_long_text = any(
            isinstance(part, ast.Constant | ast.JoinedStr) and part.lineno != part.end_lineno
            for part in ast.walk(each)
        )
        if not isinstance(each, ast.Assign | ast.Expr) or has_long_text:
            raise NotLaunchableError(f"line {each.lineno} stands between them")
        kept.append(each)
    passed = elements(argument(call, 3, "args"))
    return StartedWorker(
        module,
        loop,
        worker,
        home,
        function,
        name,
        module,
        scope,
        counting.args[0],
        passed,
        tuple(kept),
    )


def stored(stmt: ast.stmt) -> list[ast.Name]:
    """The plain names that a statement binds."""
    return [name for name in everywhere(stmt, ast.Name) if isinstance(name.ctx, ast.Store)]


def elements(given: ast.expr | None) -> tuple[ast.expr, ...]:
    """The items of a tuple that stands there, or one starred item for any other value."""
    if isinstance(given, ast.Tuple | ast.List):
        return tuple(given.elts)
    return () if given is None else (ast.copy_location(ast.Starred(given, ast.Load()), given),)


def function_of(program: Program, module: Module, worker: ast.expr) -> tuple[Module, Function]:
    """The function of a module that a worker is, also where callers pass it for a parameter."""
    around = module.function(worker)
    places: list[tuple[Module, ast.expr | None]] = [(module, worker)]
    if isinstance(worker, ast.Name) and around is not None and worker.id in parameters(around):
        places = [
            (where, argument_for_parameter(module, around, call, worker.id))
            for where, call in program.callers(around)
        ]
    found = {
        resolved: None
        for where, value in places
        for resolved in [None if value is None else program.resolve(where, value)]
    }
    one = next(iter(found)) if len(found) == 1 else None
    if one is None or not isinstance(one[1], FUNCTIONS):
        raise NotLaunchableError("what each rank runs is no one function that can be seen")
    if not isinstance(one[0].parents.get(one[1]), ast.Module):
        raise NotLaunchableError(f"{module.text(worker)} is no function of its module")
    return one[0], one[1]


def unconverted(module: Module, node: ast.expr) -> ast.expr:
    """``int(value)`` and ``str(value)`` without the call."""
    while (
        isinstance(node, ast.Call)
        and module.dotted(node.func) in CONVERSIONS
        and len(node.args) == 1
        and not node.keywords
    ):
        node = node.args[0]
    return node


def is_number_of(started: StartedWorker, module: Module, node: ast.expr) -> bool:
    """Whether a name is the number that each process of a worker gets."""
    return (
        isinstance(node, ast.Name)
        and node.id == started.number
        and module is started.place
        and module.function(node) is started.scope
        and (started.is_loop or (started.scope, node.id) not in module.stores)
    )


def origins(
    program: Program, started: StartedWorker, module: Module, node: ast.expr, depth: int = 0
) -> Iterator[Place]:
    """Where a number is from: through names, attributes, parameters and what the worker gets."""
    node = unconverted(module, node)
    values: list[Place] = []
    if depth < MAX_DEPTH and not is_number_of(started, module, node):
        values = list(values_behind(program, started, module, node))
    if not values or (isinstance(node, ast.Attribute) and is_setting(program, node)):
        yield module, node
    for where, value in values:
        yield from origins(program, started, where, value, depth + 1)


def values_behind(
    program: Program, started: StartedWorker, module: Module, node: ast.expr
) -> Iterator[Place]:
    """What a name or an attribute is bound to, one step back; not what it is made of itself."""
    if not isinstance(node, ast.Name | ast.Attribute):
        return
    if (
        isinstance(node, ast.Name)
        and module.function(node) is started.function
        and node.id in parameters(started.function)
        and not module.alternatives(node, node)
    ):
        passed = started.argument(node.id)  # the call that starts it stands for its callers
        if passed is not None:
            yield started.module, passed
        return
    for where, value in values_of(program, module, node):
        if isinstance(node, ast.Name) or not is_left_to_launchers(where, value):
            yield where, value


def is_setting(program: Program, node: ast.Attribute) -> bool:
    """Whether an attribute is an option, or of a configuration that is read from elsewhere.

    The script gives it no value of its own, unless under a test, or made of the setting itself.
    """
    if node.attr in program.options:
        return True
    return (
        isinstance(node.value, ast.Name)
        and node.value.id not in ("self", "cls")
        and all(
            is_left_to_launchers(where, value)
            or mentions(value, node.attr)
            or isinstance(where.parents[where.statement(value)], ast.If)
            for where in program.modules
            for value in where.attribute_values.get(node.attr, ())
        )
    )


def is_left_to_launchers(module: Module, value: ast.expr) -> bool:
    """``if args.rank == -1: args.rank = int(os.environ["RANK"])``: for a number that is not set."""
    return mentions(value, "environ") and any(
        isinstance(up, ast.If) and ("-1" in module.text(up.test) or "None" in module.text(up.test))
        for up in module.ancestors(value)
    )
