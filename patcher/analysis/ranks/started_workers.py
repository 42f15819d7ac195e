"""The function that a script starts once for each of its ranks, and where its numbers are from."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ....record import record
from ...source.module import Module
from ...source.tree import FUNCTIONS, Function, argument, keyword, mentions, parameters
from ..language.passed_arguments import argument_for_parameter
from ..training.program import Program

MAX_DEPTH = 8  # names between a number and where it is from
CONVERSIONS = ("int", "str")
Place = tuple[Module, ast.expr]


class NotAWorkerError(Exception):
    """What is started cannot be told to be one function with a number of its own."""


@record
class StartedWorker:
    """``stmt`` of ``module`` starts ``count`` processes, each with its number, that run a function.

    ``passed`` are the arguments behind the number, or a single starred one.
    """

    module: Module
    stmt: ast.stmt
    worker: ast.expr
    home: Module
    function: Function
    number: str
    count: ast.expr
    passed: tuple[ast.expr, ...]

    def argument(self, name: str) -> ast.expr | None:
        """What the worker gets for a parameter that is not its number."""
        names = [arg.arg for arg in (*self.function.args.posonlyargs, *self.function.args.args)]
        index = names.index(name) - names.index(self.number) - 1 if name in names else -1
        if index < 0 or any(isinstance(one, ast.Starred) for one in self.passed):
            return None
        return self.passed[index] if index < len(self.passed) else None


def started_by_spawn(program: Program, module: Module, call: ast.Call) -> StartedWorker:
    """The worker of ``torch.multiprocessing.spawn``. Raises NotAWorkerError if unclear."""
    if module.last_name(call.func) not in ("spawn", "start_processes"):
        raise NotAWorkerError("it is not started by torch.multiprocessing.spawn")
    stmt = module.statement(call)
    if not isinstance(stmt, ast.Expr) or stmt.value is not call:
        raise NotAWorkerError("the script goes on while its ranks run")
    join = argument(call, 3, "join")
    if join is not None and not (isinstance(join, ast.Constant) and join.value is True):
        raise NotAWorkerError("the script goes on while its ranks run")
    worker = argument(call, 0, "fn")
    found = None if worker is None else program.resolve(module, worker)
    if worker is None or found is None or not isinstance(found[1], FUNCTIONS):
        raise NotAWorkerError("what each rank runs is no function that can be seen")
    home, function = found
    listed = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)]
    is_method = isinstance(home.parents.get(function), ast.ClassDef)
    if not listed or is_method or not isinstance(home.parents.get(function), ast.Module):
        raise NotAWorkerError(f"{module.text(worker)} is no function of its module")
    count = argument(call, 2, "nprocs")
    if count is None:
        raise NotAWorkerError("it starts one process")
    given = argument(call, 1, "args")
    passed: tuple[ast.expr, ...] = ()
    if isinstance(given, ast.Tuple | ast.List):
        passed = tuple(given.elts)
    elif given is not None:
        passed = (ast.copy_location(ast.Starred(given, ast.Load()), given),)
    if keyword(call, "daemon") is None and len(call.args) > 4:
        raise NotAWorkerError("it is called with more than its arguments")
    return StartedWorker(module, stmt, worker, home, function, listed[0], count, passed)


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
        and module is started.home
        and module.function(node) is started.function
        and (started.function, node.id) not in module.stores
    )


def origins(
    program: Program, started: StartedWorker, module: Module, node: ast.expr, depth: int = 0
) -> Iterator[Place]:
    """Where a number is from: through names, attributes, parameters and what the worker gets."""
    node = unconverted(module, node)
    values: list[Place] = []
    if depth < MAX_DEPTH and not is_number_of(started, module, node):
        values = list(values_behind(program, started, module, node))
    if not values or (isinstance(node, ast.Attribute) and node.attr in program.options):
        yield module, node
    for where, value in values:
        yield from origins(program, started, where, value, depth + 1)


def values_behind(
    program: Program, started: StartedWorker, module: Module, node: ast.expr
) -> Iterator[Place]:
    """What a name or an attribute is bound to, one step back; not what it is made of itself."""
    if isinstance(node, ast.Attribute):
        for where in program.modules:
            for value in where.attribute_values.get(node.attr, ()):
                if not is_left_to_launchers(where, value):
                    yield where, value
    elif isinstance(node, ast.Name):
        function = module.function(node)
        if values := module.alternatives(node, node):
            yield from ((module, value) for value in values)
        elif function is not None and node.id in parameters(function):
            calls = program.callers(function)
            if function is started.function:
                passed = started.argument(node.id)
                if passed is not None:
                    yield started.module, passed
                return
            for where, call in calls:
                given = argument_for_parameter(module, function, call, node.id)
                if given is not None:
                    yield where, given
        elif (found := program.resolve(module, node)) and isinstance(found[1], ast.expr):
            yield found[0], found[1]


def is_left_to_launchers(module: Module, value: ast.expr) -> bool:
    """``if args.rank == -1: args.rank = int(os.environ["RANK"])``: for a number that is not set."""
    return mentions(value, "environ") and any(
        isinstance(up, ast.If) and ("-1" in module.text(up.test) or "None" in module.text(up.test))
        for up in module.ancestors(value)
    )
