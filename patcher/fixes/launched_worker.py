"""Let a launcher start the ranks of a script that starts them itself when it is run by python.

Under a launcher the process calls the worker once. What the script counts is set where it is from:
the processes of a machine to LOCAL_WORLD_SIZE, the machines and the machine's number to what the
launcher's numbers say, so that the script's own arithmetic has the launcher's ranks for a result.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..analysis.ranks.counted_ranks import (
    LOCAL_SIZE,
    attribute,
    counted,
    counts_cards,
    groups_of,
    is_option,
)
from ..analysis.ranks.start_tests import (
    COUNT,
    MANY,
    NONE,
    ONE,
    is_main_guard,
    tests_on_the_way,
    truth,
)
from ..analysis.ranks.started_workers import (
    NotLaunchableError,
    StartedWorker,
    origins,
    started_worker,
)
from ..analysis.training.program import Program
from ..editing.edits import Edit, Guard, Import, Insert, Rewrite
from ..source.module import Module
from ..source.tree import argument, everywhere, is_elif, is_false, is_inside, same_code
from .behind_binding import behind_binding
from .drawn_before_start import seeds_of_launcher

LOCAL_RANK = "int(os.environ['LOCAL_RANK'])"
ONE_MACHINE = """\
if os.environ['WORLD_SIZE'] != os.environ['LOCAL_WORLD_SIZE']:
    raise RuntimeError('the ranks of this script are those of one machine')
"""
NO_LAUNCHER = "'LOCAL_RANK' not in os.environ"
IN_LAUNCH = "'LOCAL_RANK' in os.environ"
SHARED = {
    *("Queue", "SimpleQueue", "JoinableQueue", "Manager", "SyncManager", "Value", "Array", "Lock"),
    *("RLock", "Event", "Barrier", "Pipe", "Semaphore", "Condition", "share_memory"),
}
QUIET_CALLS = {
    *("print", "exit", "info", "debug", "warning", "format", "round", "str", "int", "float"),
    *("time", "perf_counter", "timedelta", "now", "start", "join", "close", "collect"),
    "empty_cache",
}


def edits_to_launch(program: Program, module: Module, call: ast.Call) -> tuple[Edit, ...]:
    """The edits of a call that starts the ranks. Raises NotLaunchableError with what is unclear."""
    started = started_worker(program, module, call)
    refuse_shared_objects(program, started)
    refuse_what_follows(program, started)
    counts = counted(program, started)
    edits: list[Edit] = [Import("os")]
    rewritten = dict(rewritten_counts(program, started))
    options = counts.options | options_of_count(program, started)
    options |= switches(program, started, options)
    edits += tests_of_counts(program, started, options)
    edits += kept_switches(program, options)
    edits += rewritten.values()
    edits += addresses(program)
    edits += fixed_sizes(program)
    edits += options_set(program, started, options)
    edits += seeds_of_launcher(program, started)
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


def options_set(
    program: Program, started: StartedWorker, options: dict[str, str]
) -> Iterator[Edit]:
    """Edits that give settings the launcher's values, where they are parsed or read."""
    parsed = {name: value for name, value in options.items() if name in program.options}
    if parsed and len(program.parse_sites) != 1:
        raise NotLaunchableError(f"where --{next(iter(parsed))} is parsed cannot be told")
    if parsed:
        module, parse, args = program.parse_sites[0]
        yield from behind_binding(module, parse, args, settings_code(args, parsed))
    read = {name: value for name, value in options.items() if name not in parsed}
    if not read:
        return
    module, function = started.module, started.module.function(started.stmt)
    owners = {
        node.value.id
        for node in module.attributes(*read)
        if isinstance(node.value, ast.Name) and module.function(node) is function
    }
    owner = owners.pop() if len(owners) == 1 else ""
    stores = module.stores.get((function, owner), [])
    if not owner or len(stores) > 1 or (function is None and not stores):
        raise NotLaunchableError(f"where {next(iter(read))} is read cannot be told")
    code = settings_code(owner, read)
    if stores:
        yield from behind_binding(module, module.statement(stores[0]), owner, code)
    elif function is not None:
        yield Insert(function.body[0], code)


def settings_code(owner: str, values: dict[str, str]) -> str:
    """The statements of a process of a launcher that give attributes their values."""
    lines = [f"    {owner}.{name} = {value}" for name, value in values.items()]
    return "\n".join([f"if {IN_LAUNCH}:  # torchrun, accelerate launch", *lines])


def switches(program: Program, started: StartedWorker, options: dict[str, str]) -> dict[str, str]:
    """The switches that have to be on for ranks to be started at all."""
    found: dict[str, str] = {}
    for module, test, wanted in tests_on_the_way(program, started):
        values: dict[str, object] = {**dict.fromkeys(options, 2), **dict.fromkeys(found, True)}
        values |= MANY
        answer = truth(program, started, module, test, values)
        if answer is wanted:
            continue
        for name in possible_switches(program, module, test, is_known=answer is not None):
            if truth(program, started, module, test, values | {name: True}) is wanted:
                found[name] = "True"
                break
        else:
            raise NotLaunchableError(
                f"whether ranks are started hangs on {module.text(test)} in line {test.lineno} of"
                f" {module.source.file}"
            )
    return found


def possible_switches(
    program: Program, module: Module, test: ast.expr, *, is_known: bool
) -> Iterator[str]:
    """Options that are off by default, where the answer is known, and settings that it asks for."""
    for option in program.options.values() if is_known else ():
        if option.is_switch or option.default is False:
            yield option.dest
    for node in everywhere(test, ast.Attribute):
        is_off = all(
            is_false(value)
            for where in program.modules
            for value in where.attribute_values.get(node.attr, ())
        )
        if isinstance(node.value, ast.Name) and is_off and node.attr not in program.options:
            yield node.attr


def kept_switches(program: Program, options: dict[str, str]) -> Iterator[Edit]:
    """Edits of tests that turn a switch off, ``if len(cards) == 1: args.distributed = False``."""
    for module in program.modules:
        for name in (name for name, value in options.items() if value == "True"):
            for value in module.attribute_values.get(name, ()):
                stmt = module.statement(value)
                test = module.parents[stmt]
                if (
                    not isinstance(test, ast.If)
                    or stmt not in test.body
                    or is_elif(module.parents[test], test)
                ):
                    raise NotLaunchableError(
                        f"line {stmt.lineno} of {module.source.file} sets {name}, too"
                    )
                yield Rewrite(test.test, f"{module.conjunct(test.test)} and {NO_LAUNCHER}")


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
