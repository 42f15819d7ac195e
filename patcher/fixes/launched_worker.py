"""Let a launcher start the ranks of a script that starts them itself when it is run by python.

Under a launcher the process calls the worker once. What the script counts is set where it is from:
the processes of a machine to LOCAL_WORLD_SIZE, the machines and the machine's number to what the
launcher's numbers say, so that the script's own arithmetic has the launcher's ranks for a result.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

from ...record import record
from ..analysis.ranks.started_workers import (
    NotAWorkerError,
    Place,
    StartedWorker,
    is_number_of,
    origins,
    started_worker,
    unconverted,
)
from ..analysis.training.program import Program
from ..editing.edits import Edit, Guard, Import, Rewrite
from ..source.module import Module
from ..source.tree import argument, everywhere, is_inside, same_code
from .behind_binding import behind_binding

LOCAL_RANK = "int(os.environ['LOCAL_RANK'])"
LOCAL_SIZE = "int(os.environ['LOCAL_WORLD_SIZE'])"
MACHINES = f"int(os.environ['WORLD_SIZE']) // {LOCAL_SIZE}"
MACHINE = f"int(os.environ['RANK']) // {LOCAL_SIZE}"
ONE_MACHINE = """\
if os.environ['WORLD_SIZE'] != os.environ['LOCAL_WORLD_SIZE']:
    raise RuntimeError('the ranks of this script are those of one machine')
"""
NO_LAUNCHER = "'LOCAL_RANK' not in os.environ"
IN_LAUNCH = "'LOCAL_RANK' in os.environ"
# The processes of a machine, and whether it has cards, by keys that are no option's.
COUNT, HAS_CARDS = "", "cuda"
MANY: dict[str, object] = {COUNT: 2, HAS_CARDS: True}
ONE: dict[str, object] = {COUNT: 1, HAS_CARDS: True}
NONE: dict[str, object] = {COUNT: 1, HAS_CARDS: False}
SHARED = {
    *("Queue", "SimpleQueue", "JoinableQueue", "Manager", "SyncManager", "Value", "Array", "Lock"),
    *("RLock", "Event", "Barrier", "Pipe", "Semaphore", "Condition", "share_memory"),
}
QUIET_CALLS = {
    *("print", "time", "exit", "info", "debug", "warning", "format", "round", "perf_counter"),
    *(
        "start",
        "join",
        "close",
        "collect",
        "empty_cache",
        "timedelta",
        "now",
        "str",
        "int",
        "float",
    ),
}


class NotLaunchableError(Exception):
    """Why a launcher could not start the script's ranks."""


@record
class Counts:
    """How the script counts: the options that launchers set, whether on one machine alone."""

    options: dict[str, str]
    is_for_one_machine: bool


def edits_to_launch(program: Program, module: Module, call: ast.Call) -> tuple[Edit, ...]:
    """The edits of a call that starts the ranks. Raises NotLaunchableError with what is unclear."""
    try:
        started = started_worker(program, module, call)
    except NotAWorkerError as error:
        raise NotLaunchableError(str(error)) from error
    refuse_shared_objects(program, started)
    refuse_what_follows(program, started)
    counts = counted(program, started)
    edits: list[Edit] = [Import("os")]
    rewritten = dict(rewritten_counts(program, started))
    options = counts.options | options_of_count(program, started)
    options |= switches(program, started, options)
    edits += tests_of_counts(program, started, options)
    edits += rewritten.values()
    edits += addresses(program)
    edits += fixed_sizes(program)
    edits += options_set(program, options)
    guard = ONE_MACHINE if counts.is_for_one_machine else ""
    edits.append(Guard(started.stmt, NO_LAUNCHER, guard + call_of_worker(started)))
    return tuple(edits)


def call_of_worker(started: StartedWorker) -> str:
    """What a process of a launcher does instead of starting others."""
    module = started.module
    parts, lines = [LOCAL_RANK], []
    if started.is_loop:
        parts, lines = [], [f"{started.number} = {LOCAL_RANK}", *map(module.text, started.ahead)]
    for value in started.passed:
        if isinstance(value, ast.Starred):
            parts.append(f"*{module.operand(value.value)}")
        elif not isinstance(started.count, ast.Name | ast.Attribute) and same_code(
            value, started.count
        ):
            parts.append(LOCAL_SIZE)
        else:
            parts.append(module.text(value))
    result = "return " if isinstance(started.stmt, ast.Return) else ""
    return "\n".join([*lines, f"{result}{module.text(started.worker)}({', '.join(parts)})"])


def groups_of(program: Program) -> list[tuple[Module, ast.Call]]:
    return [
        (module, call)
        for module, call in program.calls_to("init_process_group")
        if module.dotted(call.func).startswith("torch.distributed.")
        and program.is_live(module, call)
    ]


def counted(program: Program, started: StartedWorker) -> Counts:
    """How ranks and their number are made for the process group."""
    groups = groups_of(program)
    if not groups:
        raise NotLaunchableError("where the group is made cannot be told")
    options: dict[str, str] = {}
    is_for_one = False
    for module, group in groups:
        rank = argument(group, 4, "rank")
        size = argument(group, 3, "world_size")
        ranks = [(module, rank)] if rank is not None else variables(program, "RANK")
        sizes = [(module, size)] if size is not None else variables(program, "WORLD_SIZE")
        if not ranks or not sizes:
            raise NotLaunchableError(
                f"what rank and world_size are in line {group.lineno} cannot be told"
            )
        for place in ranks:
            is_for_one |= rank_of(program, started, place, options)
        for place in sizes:
            is_for_one |= size_of(program, started, place, options)
    return Counts(options, is_for_one)


def variables(program: Program, name: str) -> list[Place]:
    """What the script sets a variable of the environment to."""
    return [
        (module, stmt.value)
        for module in program.modules
        for stmt in module.nodes(ast.Assign)
        for target in stmt.targets
        if isinstance(target, ast.Subscript)
        and module.dotted(target.value) == "os.environ"
        and isinstance(target.slice, ast.Constant)
        and target.slice.value == name
    ]


def rank_of(
    program: Program, started: StartedWorker, place: Place, options: dict[str, str]
) -> bool:
    """Whether a rank is right on one machine alone; ``options`` gets that of the machine's number.

    Raises NotLaunchableError where a rank is made in another way.
    """
    module, node = place
    found = [*added_to(program, started, module, node)] or [
        each for each in origins(program, started, module, node) if not is_option(program, each)
    ]
    is_for_one = False
    for where, value in found:
        if is_number_of(started, where, value):
            is_for_one = True
            continue
        machine = number_of_machine(program, started, where, value)
        if machine is None:
            break
        of_machine = list(origins(program, started, *machine))
        named = [each for each in of_machine if is_option(program, each)]
        if named:
            options[attribute(named[0])] = MACHINE
        elif all(is_constant(each, 0) for each in of_machine):
            is_for_one = True
        else:
            break
    else:
        if found:
            return is_for_one
    raise NotLaunchableError(
        f"how {module.text(node)} in line {node.lineno} of {module.source.file} is made of the"
        " number of a process cannot be told"
    )


def added_to(
    program: Program, started: StartedWorker, module: Module, node: ast.expr
) -> Iterator[Place]:
    """``args.rank += gpu`` behind ``args.rank = machine * cards``, as one sum."""
    if not isinstance(node, ast.Attribute):
        return
    for where in program.modules:
        for add in where.nodes(ast.AugAssign):
            if (
                isinstance(add.target, ast.Attribute)
                and add.target.attr == node.attr
                and isinstance(add.op, ast.Add)
                and any(
                    is_number_of(started, *each)
                    for each in origins(program, started, where, add.value)
                )
            ):
                for other in program.modules:
                    for value in other.attribute_values.get(node.attr, ()):
                        total = ast.BinOp(value, ast.Add(), add.value)
                        yield other, ast.copy_location(total, value)


def number_of_machine(
    program: Program, started: StartedWorker, module: Module, node: ast.expr
) -> Place | None:
    """``machine`` of ``machine * cards + number``."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add):
        return None
    for one, other in ((node.left, node.right), (node.right, node.left)):
        if not any(is_number_of(started, *each) for each in origins(program, started, module, one)):
            continue
        if is_constant((module, other), 0):
            return module, other
        for where, product in (
            [(module, other)]
            if isinstance(other, ast.BinOp)
            else list(origins(program, started, module, other))
        ):
            if is_constant((where, product), 0):
                return where, product
            machine = other_factor(program, started, where, product)
            if machine is not None:
                return machine
    return None


def other_factor(
    program: Program, started: StartedWorker, module: Module, node: ast.expr
) -> Place | None:
    """What the count of a machine's processes is multiplied by."""
    node = unconverted(module, node)
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return None
    for one, other in ((node.left, node.right), (node.right, node.left)):
        if is_count(program, started, module, one):
            return module, other
    return None


def size_of(
    program: Program, started: StartedWorker, place: Place, options: dict[str, str]
) -> bool:
    """Whether a world's size is right on one machine alone; ``options`` gets what counts machines.

    Raises NotLaunchableError where it is made in another way.
    """
    module, node = place
    if isinstance(node, ast.Constant):
        return True
    found = list(origins(program, started, module, node))
    made = [each for each in found if not is_option(program, each)]
    if is_count(program, started, module, node) and not any(
        other_factor(program, started, *each) for each in made
    ):
        return True
    if not made and len(found) == 1:
        options[attribute(found[0])] = "int(os.environ['WORLD_SIZE'])"
        return False
    is_for_one = False
    for where, value in made:
        machines = other_factor(program, started, where, value)
        if machines is None:
            break
        of_machines = list(origins(program, started, *machines))
        named = [each for each in of_machines if is_option(program, each)]
        if named:
            options[attribute(named[0])] = MACHINES
        elif all(is_constant(each, 1) for each in of_machines):
            is_for_one = True
        else:
            break
    else:
        return is_for_one
    raise NotLaunchableError(
        f"how {module.text(node)} in line {node.lineno} of {module.source.file} counts the ranks"
        " cannot be told"
    )


def is_count(program: Program, started: StartedWorker, module: Module, node: ast.expr) -> bool:
    """Whether an expression is the number of processes that are started."""
    node = unconverted(module, node)
    if isinstance(node, ast.Attribute) and same_code(node, started.count):
        return True
    counts = list(origins(program, started, started.module, started.count))
    return any(
        any(is_same(module, one, *each) for each in counts)
        for where, one in origins(program, started, module, node)
        for module in (where,)
    )


def is_same(module: Module, node: ast.expr, where: Module, other: ast.expr) -> bool:
    """Whether two expressions are one place, one option, or both count the cards."""
    if node is other:
        return True
    if isinstance(node, ast.Attribute) and isinstance(other, ast.Attribute):
        return node.attr == other.attr
    if isinstance(node, ast.Constant) and isinstance(other, ast.Constant):
        return module.statement(node) is where.statement(other) and node.value == other.value
    return counts_cards(module, node) and counts_cards(where, other)


def counts_cards(module: Module, node: ast.expr) -> bool:
    """``torch.cuda.device_count()``."""
    return isinstance(node, ast.Call) and module.dotted(node.func) == "torch.cuda.device_count"


def is_option(program: Program, place: Place) -> bool:
    """Whether an expression is an option's value."""
    return isinstance(place[1], ast.Attribute) and place[1].attr in program.options


def attribute(place: Place) -> str:
    assert isinstance(place[1], ast.Attribute)
    return place[1].attr


def is_constant(place: Place, value: int) -> bool:
    return isinstance(place[1], ast.Constant) and place[1].value == value


def options_of_count(program: Program, started: StartedWorker) -> dict[str, str]:
    """The option that says how many processes are started."""
    return {
        attribute(each): LOCAL_SIZE
        for each in origins(program, started, started.module, started.count)
        if is_option(program, each)
    }


def rewritten_counts(
    program: Program, started: StartedWorker
) -> Iterator[tuple[ast.expr, Rewrite]]:
    """The expressions that count a machine's processes, as the launcher counts them."""
    counts_all = False
    for module, node in origins(program, started, started.module, started.count):
        counts_all |= counts_cards(module, node)
        if is_inside(node, started.stmt) or is_option(program, (module, node)):
            continue
        if isinstance(node, ast.Name) or not is_bound_by_assignment(module, node):
            raise NotLaunchableError(
                f"where {started.module.text(started.count)} in line {started.count.lineno} is"
                " counted cannot be told"
            )
        yield node, by_launcher(module, node)
    for module, call in program.calls_to("device_count") if counts_all else ():
        up = module.parents[call]
        is_product = isinstance(up, ast.BinOp) and not isinstance(up.op, ast.Mod)
        is_value = isinstance(up, ast.Assign) or is_argument(up, call)
        is_meant = counts_cards(module, call) and (is_product or is_value)
        if is_meant and program.is_live(module, call) and not is_inside(call, started.stmt):
            yield call, by_launcher(module, call)


def is_argument(call: ast.AST, node: ast.expr) -> bool:
    """Whether an expression is the ``world_size`` of a call."""
    return isinstance(call, ast.keyword) and call.value is node and call.arg == "world_size"


def is_bound_by_assignment(module: Module, node: ast.expr) -> bool:
    stmt = module.statement(node)
    return isinstance(stmt, ast.Assign | ast.AnnAssign)


def by_launcher(module: Module, node: ast.expr) -> Rewrite:
    return Rewrite(node, f"int(os.environ.get('LOCAL_WORLD_SIZE', {module.text(node)}))")


def addresses(program: Program) -> Iterator[Edit]:
    """Edits by which groups meet at the launcher's address: those of no other serve its ranks."""
    for module, group in groups_of(program):
        method = argument(group, 1, "init_method")
        if method is None or isinstance(method, ast.Constant | ast.IfExp):
            continue  # DF106 sees to an address that is written down
        yield Rewrite(method, f"'env://' if 'MASTER_PORT' in os.environ else {module.text(method)}")


def fixed_sizes(program: Program) -> Iterator[Edit]:
    """Edits of a world size that stands in the call that makes the group."""
    for module, group in groups_of(program):
        size = argument(group, 3, "world_size")
        if isinstance(size, ast.Constant):
            yield Rewrite(size, f"int(os.environ.get('WORLD_SIZE', {module.text(size)}))")


def options_set(program: Program, options: dict[str, str]) -> Iterator[Edit]:
    """Edits that give options the launcher's values, right behind the parsing of them."""
    if not options:
        return
    if len(program.parse_sites) != 1:
        raise NotLaunchableError(f"where --{next(iter(options))} is parsed cannot be told")
    module, parse, args = program.parse_sites[0]
    lines = [f"    {args}.{option} = {value}" for option, value in options.items()]
    code = "if 'LOCAL_RANK' in os.environ:  # torchrun, accelerate launch"
    yield from behind_binding(module, parse, args, "\n".join([code, *lines]))


def switches(program: Program, started: StartedWorker, options: dict[str, str]) -> dict[str, str]:
    """The switches that have to be on for ranks to be started at all."""
    found: dict[str, str] = {}
    for module, test, wanted in tests_on_the_way(program, started):
        values: dict[str, object] = {**dict.fromkeys(options, 2), **dict.fromkeys(found, True)}
        values |= MANY
        answer = truth(program, started, module, test, values)
        if answer is wanted:
            continue
        for option in program.options.values():
            if answer is None or option.default not in (None, False):
                continue
            if not option.is_switch and option.default is not False:
                continue
            if truth(program, started, module, test, values | {option.dest: True}) is wanted:
                found[option.dest] = "True"
                break
        else:
            raise NotLaunchableError(
                f"whether ranks are started hangs on {module.text(test)} in line {test.lineno} of"
                f" {module.source.file}"
            )
    return found


def tests_of_counts(
    program: Program, started: StartedWorker, options: dict[str, str]
) -> Iterator[Edit]:
    """Edits of tests such as ``if cards > 1:``, as a machine may have one process of several."""
    for module, test, wanted in tests_on_the_way(program, started):
        for cards in (ONE, NONE):
            counted = dict.fromkeys(options, cards[COUNT])
            switched = {name: True for name, value in options.items() if value == "True"}
            if truth(program, started, module, test, counted | switched | cards) is not wanted:
                is_loose = isinstance(test, ast.IfExp | ast.Lambda | ast.NamedExpr)
                text = f"({module.text(test)})" if is_loose else module.text(test)
                code = f"{text} or {IN_LAUNCH}"
                code = code if wanted else f"{module.conjunct(test)} and {NO_LAUNCHER}"
                yield Rewrite(test, code)
                break


def tests_on_the_way(
    program: Program, started: StartedWorker
) -> Iterator[tuple[Module, ast.expr, bool]]:
    """The tests around the start of the ranks, with the answer that leads there."""
    child: ast.AST = started.stmt
    module = started.module
    for up in module.ancestors(started.stmt):
        if isinstance(up, ast.If) and child is not up.test and not is_main_guard(up.test):
            yield module, up.test, any(child is each for each in up.body)
        elif isinstance(up, ast.For | ast.While | ast.Try | ast.Match):
            raise NotLaunchableError("it stands in a loop, a try or a match")
        child = up


def is_main_guard(test: ast.expr) -> bool:
    return any(name.id == "__name__" for name in everywhere(test, ast.Name))


def truth(
    program: Program,
    started: StartedWorker,
    module: Module,
    test: ast.expr,
    values: dict[str, object],
) -> bool | None:
    """The answer of a test with these ``values``, and other options as by default."""
    answer = value_of(program, started, module, test, values)
    return None if answer is UNKNOWN else bool(answer)


UNKNOWN = object()


def value_of(
    program: Program,
    started: StartedWorker,
    module: Module,
    node: ast.expr,
    values: dict[str, object],
    depth: int = 0,
) -> object:
    """The value of an expression, as `truth` says; UNKNOWN where it cannot be told."""

    def of(inner: ast.expr) -> object:
        return value_of(program, started, module, inner, values, depth + 1)

    match node:
        case ast.Constant():
            return node.value
        case ast.UnaryOp(op=ast.Not()):
            inner = of(node.operand)
            return UNKNOWN if inner is UNKNOWN else not inner
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
            return -value
        case ast.BoolOp():
            parts = [of(each) for each in node.values]
            decisive = isinstance(node.op, ast.Or)
            if any(each is not UNKNOWN and bool(each) is decisive for each in parts):
                return decisive
            return UNKNOWN if UNKNOWN in parts else not decisive
        case ast.Compare():
            sides = [of(each) for each in (node.left, *node.comparators)]
            if UNKNOWN in sides:
                return UNKNOWN
            pairs = zip(node.ops, pairwise(sides), strict=True)
            return all(compared(op, *pair) for op, pair in pairs)
        case ast.Call() if counts_cards(module, node):
            return values[COUNT]
        case ast.Call() if module.dotted(node.func) == "torch.cuda.is_available":
            return values[HAS_CARDS]
        case ast.Name() | ast.Attribute() if depth < 8:
            if isinstance(node, ast.Attribute) and node.attr in values:
                return values[node.attr]
            if is_count(program, started, module, node):
                return values[COUNT]
            return bound_value(program, started, module, node, values, depth)
    return UNKNOWN


def compared(op: ast.cmpop, one: object, other: object) -> bool:
    """The answer of one comparison; False for what has no order."""
    match op:
        case ast.Eq() | ast.Is():
            return one == other
        case ast.NotEq() | ast.IsNot():
            return one != other
    if not (isinstance(one, int | float) and isinstance(other, int | float)):
        return False
    match op:
        case ast.Gt():
            return one > other
        case ast.GtE():
            return one >= other
        case ast.Lt():
            return one < other
        case ast.LtE():
            return one <= other
    return False


def bound_value(
    program: Program,
    started: StartedWorker,
    module: Module,
    node: ast.Name | ast.Attribute,
    values: dict[str, object],
    depth: int,
) -> object:
    """The value of a name or an attribute by what is assigned to it, or by the option's default."""
    places: list[Place] = []
    if isinstance(node, ast.Attribute):
        places = [(m, v) for m in program.modules for v in m.attribute_values.get(node.attr, ())]
    elif not places:
        places = [(module, each) for each in module.alternatives(node, node)]
    found = [value_of(program, started, where, value, values, depth + 1) for where, value in places]
    if found and all(each == found[0] and each is not UNKNOWN for each in found):
        return found[0]
    if places or not isinstance(node, ast.Attribute) or node.attr not in program.options:
        return UNKNOWN
    option = program.options[node.attr]
    if option.default is None and option.is_switch:
        return False
    return option.default


def refuse_shared_objects(program: Program, started: StartedWorker) -> None:
    """Raise where processes share what a launcher's do not: queues, locks, shared memory."""
    for module, call in program.calls_to(*SHARED):
        dotted = module.dotted(call.func)
        name = module.last_name(call.func)
        is_shared = "multiprocessing" in dotted or name in ("share_memory", "SimpleQueue")
        if is_shared and program.is_live(module, call):
            raise NotLaunchableError(
                f"its processes share what {module.text(call.func)}() makes in line {call.lineno}"
                f" of {module.source.file}"
            )


def refuse_what_follows(program: Program, started: StartedWorker) -> None:
    """Raise where the script goes on, in one process, when its ranks are done."""
    unseen: list[tuple[Module, ast.stmt]] = [(started.module, started.stmt)]
    seen: set[ast.AST] = set()
    while unseen:
        module, stmt = unseen.pop()
        function = module.function(stmt)
        place: ast.stmt = stmt
        while not isinstance(place, ast.Return):
            body = module.body(place)
            for later in body[body.index(place) + 1 :]:
                if not is_quiet(module, later):
                    raise NotLaunchableError(
                        f"line {later.lineno} of {module.source.file} runs once its ranks are done,"
                        " in one process; each process of a launcher would come to it"
                    )
            above = module.parents[place]
            if above is function or not isinstance(above, ast.stmt):
                break
            place = above
        if function is not None and function not in seen:
            seen.add(function)
            unseen += [(where, where.statement(call)) for where, call in program.callers(function)]


def is_quiet(module: Module, stmt: ast.stmt) -> bool:
    """Whether a statement may run in each process: it prints, takes the time, or defines."""
    if isinstance(stmt, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom | ast.Pass):
        return True
    if isinstance(stmt, ast.If) and is_main_guard(stmt.test):
        return True
    return all(module.last_name(call.func) in QUIET_CALLS for call in everywhere(stmt, ast.Call))
