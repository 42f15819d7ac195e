"""A file or folder is made by every rank.

What         open(…, "w"), a logging.FileHandler, loguru's logger.add(file),
             logging.basicConfig(filename=…) or a dictConfig() of handlers with files that every
             rank reaches, or an evaluation function that writes and that every rank will run; a
             folder created after a check whether it exists.
At run time  Ranks overwrite each other's lines; makedirs fails on the rank that comes second.
Example      with open(os.path.join(args.output_dir, "predictions.txt"), "w") as f: …
Fix          Rank 0 alone writes; makedirs and mkdir get exist_ok=True, and a lone process alone
             insists on exist_ok=False. A block that fills what all ranks need behind it still runs
             on every rank, and writes to nowhere on the others.
             A FileHandler created before the process group asks the launcher's variable RANK: no
             process has a rank yet.
Fix safety   Safe: a lone process writes as before.
Source       os.makedirs, logging.handlers
"""

import ast
import re
from collections.abc import Iterator

from ...record import replace
from ..analysis.effects.file_effects import (
    file_sinks,
    is_file_sink,
    is_of_a_library,
)
from ..analysis.effects.file_locks import holds_file_lock
from ..analysis.effects.logging_config import log_configurations
from ..analysis.effects.only_read import is_only_read
from ..analysis.effects.written_paths import (
    is_memory,
    is_named_by_share,
    may_be_named_by_share,
    names_rank,
    parts_of_text,
)
from ..analysis.language.conditions import condition
from ..analysis.language.passed_arguments import argument_for_parameter
from ..analysis.ranks.before_group import runs_before_group
from ..analysis.ranks.rank_reach import (
    RANKS,
    Role,
    is_rank_test,
    rank_gates,
    roles_reaching,
    roles_reaching_in_function,
)
from ..analysis.training.program import Program
from ..editing.edits import Define, Edit, Guard, Import, Insert, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.handed_paths import handed_paths, is_looked_for, reads_instead
from ..fixes.left_to_main import may_be_left_to_main
from ..fixes.process_group import WAIT, only_on_main
from ..fixes.rank_0_first import is_fetched_in_turn
from ..fixes.written_by_one import (
    in_lock_step,
    is_read_later,
    runs_in_save_pretrained,
    tests_for_missing,
)
from ..source.branches import handlers_of_file_errors
from ..source.module import Module
from ..source.tree import (
    Function,
    argument,
    bound_names,
    is_false,
    is_inside,
    keyword,
    last_argument,
    mentions,
    names_within,
    only_argument,
    parameters,
    within,
)

CODE, SEVERITY, SAFETY = "DF602", Severity.DEGRADED, Safety.SAFE

OPEN_FUNCTIONS = ("open", "codecs.open", "io.open", "gzip.open", "bz2.open", "lzma.open")
HANDLER_CLASSES = (
    "FileHandler",
    "RotatingFileHandler",
    "TimedRotatingFileHandler",
    "WatchedFileHandler",
    "basicConfig",
)
MODE = re.compile("[rwax][bt]?\\+?[bt]?")  # of a file that is opened
PATH = re.compile("path|file|folder|dir|log|cache|out", re.IGNORECASE)  # in names of paths
IS_MAIN = "os.environ.get('RANK', '0') == '0'"  # where there is no group to ask
OF_THE_FILE = ("name", "fileno", "read", "readline", "readlines", "seek", "tell", "truncate")


def findings(program: Program) -> Iterator[Finding]:
    if program.only_evaluates:
        return
    asks_group = bool(program.calls_to("init_process_group")) or not any(
        name.startswith("horovod.")
        for module in program.modules
        for name in module.aliases.values()
    )
    for finding in files_of_all(program):  # Horovod's ranks have no group that an edit could ask
        yield finding if asks_group else replace(finding, edits=())


def files_of_all(program: Program) -> Iterator[Finding]:
    """Files and folders that every rank makes."""
    for module in program.modules:
        yield from unsafe_folders(program, module)
        for call in module.calls_to("open"):
            if not is_for_writing(module, call) or is_rank_dependent(module, call):
                continue
            path = path_of(module, call)
            if path is None or is_memory(module, path) or names_rank(program, module, path):
                continue
            if is_fetched_in_turn(program, module, call) or is_named_by_share(
                program, module, call, path
            ):
                continue
            if holds_file_lock(program, module, call) and not appends(module, call):
                continue
            if is_of_one_result(module, call, path) or (
                everyone_writes(program, module, call)
                and may_be_named_by_share(program, module, call, path)
            ):
                because = "every rank writes it, unless each has results of its own"
                yield Finding(module, call, because)
                continue
            if everyone_writes(program, module, call) and is_made_where_missing(
                program, module, call, path
            ):
                because = "every rank writes it that does not find it, and may read it then"
                yield Finding(module, call, because)
            elif everyone_writes(program, module, call):
                yield from single_writer(program, module, call)
                yield from callers_that_read(program, module, call, path)
        yield from log_handlers(program, module)
        yield from configured_logs(program, module)


def unsafe_folders(program: Program, module: Module) -> Iterator[Finding]:
    """Folders that a rank makes where another one may have made them: an error of the second."""
    for call in (*module.calls_to("makedirs"), *module.calls_to("mkdir")):
        insists = keyword(call, "exist_ok")
        if insists is not None:
            edits = one_process_insists(program, module, call, insists.value)
        else:
            edits = forgiving(module, call)
        if not edits or is_left_to_one(program, module, call):
            continue
        is_alone = Role.OTHER not in roles_reaching(program, module, call)
        whose = "a rank of another machine" if is_alone else "another rank"
        because = f"{whose} may make the folder first"
        handlers = handlers_of_file_errors(call)
        if not handlers:
            yield Finding(module, call, because, edits)
        elif not all(lets_pass(each) for each in handlers):
            # It may be meant for the folder of an earlier run, which an edit would let pass.
            line = handlers[0].lineno
            yield Finding(module, call, f"{because}, and comes to line {line}")


def lets_pass(handler: ast.ExceptHandler) -> bool:
    """Whether nothing is done about a folder that is there: other errors may be raised again.

    ``if error.errno == errno.EEXIST and os.path.isdir(path): pass`` and ``else: raise``.
    """
    match handler.body:
        case [ast.If(test=test, body=body, orelse=orelse)]:
            asks = any(mentions(test, word) for word in ("EEXIST", "isdir", "exists"))
            return asks and all(isinstance(s, ast.Pass | ast.Raise) for s in (*body, *orelse))
        case body:
            return all(isinstance(stmt, ast.Pass) for stmt in body)


def one_process_insists(
    program: Program, module: Module, call: ast.Call, value: ast.expr
) -> tuple[Edit, ...]:
    """Edits of ``exist_ok=False``, by which a lone process insists on a folder of its own.

    Also of ``exist_ok=resume``, which may be false.
    """
    early = runs_before_group(program, module, call)
    code, needed = ("'RANK' in os.environ", "os")
    if not early:
        code, needed = ("torch.distributed.is_initialized()", "torch")
    if is_false(value) and forgiving(module, call):
        return (Rewrite(value, code), Import(needed))
    if isinstance(value, ast.Name | ast.Attribute | ast.Compare) and code not in module.text(value):
        return (Rewrite(value, f" or {code}", after=True), Import(needed))
    return ()


def forgiving(module: Module, call: ast.Call) -> tuple[Edit, ...]:
    """Edits that let a folder be there already; none for a call that makes no folder."""
    last, path = last_argument(call), only_argument(call, "path")
    match module.dotted(call.func):
        case "os.makedirs" if last is not None:
            return (Rewrite(last, ", exist_ok=True", after=True),)
        case "os.mkdir" if path is not None:
            text = f"os.makedirs({module.text(path)}, exist_ok=True)"
            return (Rewrite(call, text), Import("os"))
    if isinstance(call.func, ast.Attribute) and is_path(module, call.func.value):
        passed = [*map(module.text, call.args), *map(module.text, call.keywords)]
        words = ", ".join([*passed, "exist_ok=True"])
        return (Rewrite(call, f"{module.text(call.func)}({words})"),)
    return ()


def is_left_to_one(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether one rank alone comes to a call, and not one of each machine."""
    gates = rank_gates(module, call)
    tests = [condition(module, gate).test for gate in gates]
    is_local = any("local" in module.text(test).lower() for test in tests)
    return Role.OTHER not in roles_reaching(program, module, call) and not is_local


def is_path(module: Module, node: ast.expr) -> bool:
    """Whether an expression is ``Path(…)``, or a name for it."""
    value = module.definition(node, node) or node if isinstance(node, ast.Name) else node
    return isinstance(value, ast.Call) and module.dotted(value.func) in ("pathlib.Path", "Path")


def log_handlers(program: Program, module: Module) -> Iterator[Finding]:
    """Log files that every rank of a group opens."""
    groups = [call for _, call in program.calls_to("init_process_group")]
    for call in (*module.calls_to(*HANDLER_CLASSES), *file_sinks(module)):
        path = path_of(module, call)
        if not groups or path is None or is_rank_dependent(module, call):
            continue
        if names_rank(program, module, path):
            continue
        if not roles_reaching(program, module, call) >= RANKS:
            continue
        is_guarded = is_file_sink(module, call) and isinstance(module.parents[call], ast.Expr)
        if runs_before_group(program, module, call):
            because = "every rank writes it, and the group comes later"
            code = f"{module.conjunct(path)} if {IS_MAIN} else os.devnull"
            early = Guard(module.statement(call), IS_MAIN) if is_guarded else Rewrite(path, code)
            yield Finding(module, call, because, (early, Import("os")))
        elif is_guarded:
            only = Guard(module.statement(call), "is_main_process()")
            yield Finding(module, call, "every rank writes it", (only, Define("is_main_process")))
        else:
            yield Finding(module, call, "every rank writes it", write_on_main_only(module, call))


def configured_logs(program: Program, module: Module) -> Iterator[Finding]:
    """Configurations of logging by which every rank of a group opens the log files they name."""
    if not program.calls_to("init_process_group"):
        return
    for call in log_configurations(program.modules, module):
        if roles_reaching(program, module, call) >= RANKS:
            early = runs_before_group(program, module, call)
            guard = only_on_main(module.statement(call), before_group=early)
            yield Finding(module, call, "every rank opens the log files that it names", guard)


def is_for_writing(module: Module, call: ast.Call) -> bool:
    mode = mode_of(module, call)
    is_opener = module.dotted(call.func) in OPEN_FUNCTIONS
    return (
        (is_opener or opened_path(module, call) is not None)
        and isinstance(mode, ast.Constant)
        and isinstance(mode.value, str)
        and any(letter in mode.value for letter in "wax+")
        and not is_only_read(module, call)
    )


def appends(module: Module, call: ast.Call) -> bool:
    mode = mode_of(module, call)
    return isinstance(mode, ast.Constant) and isinstance(mode.value, str) and "a" in mode.value


def is_of_one_result(module: Module, call: ast.Call, path: ast.expr) -> bool:
    """Whether a function names the file by one of the results that it is given.

    ``for each in predictions: open(each["file_name"], "wb")``: ranks may have other results each.
    """
    function = module.function(call)
    if function is None:
        return False
    given = parameters(function) - {"self"}
    return any(
        any(names_within(part, bound_names(loop.target)) for part in parts_of_text(module, path))
        for loop in module.ancestors(call)
        if isinstance(loop, ast.For)
        and isinstance(loop.iter, ast.Name)
        and loop.iter.id in given
        and module.function(loop) is function
    )


def is_made_where_missing(program: Program, module: Module, call: ast.Call, path: ast.expr) -> bool:
    """Whether a function gets the path of a file from a caller that did not find one there."""
    return any(
        is_looked_for(handed) or reads_instead(handed) is not None
        for handed in handed_paths(program, module, call, path)
    )


def path_of(module: Module, call: ast.Call) -> ast.expr | None:
    """The path that a call of ``open``, of a log handler or of ``basicConfig`` opens."""
    return opened_path(module, call) or argument(call, 0, "file", "filename", "sink")


def opened_path(module: Module, call: ast.Call) -> ast.expr | None:
    """``path`` of ``path.open("w")``: what is opened by a mode alone, and is a path or named so."""
    func, mode = call.func, argument(call, 0, "mode")
    if not isinstance(func, ast.Attribute) or func.attr != "open" or is_of_a_library(module, func):
        return None
    path = func.value
    value = module.definition(path, path) or path
    is_made = isinstance(value, ast.Call) and module.dotted(value.func) == "pathlib.Path"
    is_joined = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div)
    is_path = is_made or is_joined or PATH.search(module.last_name(path)) is not None
    is_mode = isinstance(mode, ast.Constant) and MODE.fullmatch(str(mode.value)) is not None
    return path if is_path and (is_mode or is_made or is_joined) else None


def mode_of(module: Module, call: ast.Call) -> ast.expr | None:
    """The mode in which a call opens a file."""
    return argument(call, 1 if opened_path(module, call) is None else 0, "mode")


def is_rank_dependent(module: Module, call: ast.Call) -> bool:
    """``open(path if is_main_process() else os.devnull, "w")``."""
    path = path_of(module, call)
    return isinstance(path, ast.IfExp) and is_rank_test(module, path.test)


def everyone_writes(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether every rank reaches the call, now or once every rank evaluates."""
    if program.evaluation_of(module, call) is not None:
        return Role.OTHER in roles_reaching_in_function(module, call)
    return Role.OTHER in roles_reaching(program, module, call)


def single_writer(program: Program, module: Module, call: ast.Call) -> Iterator[Finding]:
    """The finding for a file that every rank opens, with edits that leave the writing to rank 0.

    Where other statements need what the block binds or changes, all ranks still run the block.
    """
    stmt = module.statement(call)
    because = "every rank writes it"
    outer = left_to_main_around(program, module, stmt)
    if outer is not None:  # and with it what it holds; a barrier inside would wait for nobody
        own, others = (
            path_of(module, call),
            [path_of(module, each) for each in files_opened(module, outer)],
        )
        waits = any(is_read_later(module, outer, each) for each in others)
        if not waits and is_read_later(module, outer, own) and in_lock_step(program, module, outer):
            wait = (Insert(outer, WAIT, "after"), Import("torch"))
            yield Finding(module, call, f"{because} and reads it", wait)
        return
    guard = only_on_main(stmt, before_group=runs_before_group(program, module, stmt))
    barrier: tuple[Edit, ...] = ()
    if is_read_later(module, stmt, path_of(module, call)) and not runs_in_save_pretrained(
        program, module, stmt
    ):
        because += " and reads it"
        if not in_lock_step(program, module, stmt):
            yield Finding(module, call, f"{because}; ranks may pass it unequally often")
            return
        barrier = (Insert(stmt, WAIT, "after"), Import("torch"))
    elif tests := tests_for_missing(program, module, stmt, path_of(module, call)):
        because += f", and reads it behind line {tests[0][1].lineno}, which asks for it"
        if not all(in_lock_step(program, where, asking) for where, asking in tests):
            yield Finding(module, call, f"{because}; ranks may pass it unequally often")
            return
        barrier = (*(Insert(asking, WAIT, "after") for _, asking in tests), Import("torch"))
    if isinstance(stmt, ast.Expr):  # json.dump(result, open(path, "w"))
        yield Finding(module, call, because, (*guard, *barrier))
        return
    if isinstance(stmt, ast.With) and may_be_left_to_main(program, module, stmt):
        yield Finding(module, call, because, (*guard, *barrier))
        return
    if needs_the_file(stmt):
        yield Finding(module, call, f"{because}, and others use its name or what is in it")
        return
    yield Finding(module, call, because, (*write_on_main_only(module, call), *barrier))


def left_to_main_around(program: Program, module: Module, stmt: ast.stmt) -> ast.With | None:
    """The outermost block around a statement that writes a file, and so is left to rank 0."""
    found = None
    for up in module.ancestors(stmt):
        if isinstance(up, Function):
            break
        if (
            isinstance(up, ast.With)
            and (files := files_opened(module, up))
            and may_be_left_to_main(program, module, up)
            and (
                in_lock_step(program, module, up)
                or not any(is_read_later(module, up, path_of(module, each)) for each in files)
            )
        ):
            found = up
    return found


def files_opened(module: Module, block: ast.With) -> list[ast.Call]:
    """The calls at the head of a block that open a file to write it, on every rank alike."""
    heads = [item.context_expr for item in block.items]
    return [
        call
        for call in heads
        if isinstance(call, ast.Call)
        and is_for_writing(module, call)
        and not is_rank_dependent(module, call)
    ]


def needs_the_file(stmt: ast.stmt) -> bool:
    """Whether a block hands its file on, asks for its name or reads it, as os.devnull has neither.

    A caller that gets the file may move it to its place: os.rename(file.name, path).
    """
    if not isinstance(stmt, ast.With):
        return False
    files = set().union(*(bound_names(i.optional_vars) for i in stmt.items if i.optional_vars))
    handed: list[ast.expr | None] = [one.value for one in within(stmt, ast.Yield)]
    handed += [one.value for one in within(stmt, ast.Return)]
    return any(isinstance(one, ast.Name) and one.id in files for one in handed) or any(
        node.attr in OF_THE_FILE and isinstance(node.value, ast.Name) and node.value.id in files
        for node in within(stmt, ast.Attribute)
    )


def callers_that_read(
    program: Program, module: Module, call: ast.Call, path: ast.expr
) -> Iterator[Finding]:
    """Calls of the function that writes, behind which all ranks use the path that they passed."""
    function = module.function(call)
    if function is None or not isinstance(path, ast.Name) or path.id not in parameters(function):
        return
    for where, caller in program.callers(function):
        passed = argument_for_parameter(module, function, caller, path.id)
        if not isinstance(passed, ast.Name):
            continue
        stmt = where.statement(caller)
        block = where.body(stmt)
        later = block[block.index(stmt) + 1 :]
        reads = [n for n in names_within(later, {passed.id}) if isinstance(n.ctx, ast.Load)]
        waits = bool(later) and any(is_inside(b, later[0]) for b in where.calls_to("barrier"))
        by_main = runs_in_save_pretrained(program, where, stmt)
        if reads and not waits and not by_main and in_lock_step(program, where, stmt):
            because = f"rank 0 alone writes {passed.id} in {function.name}(), and all ranks use it"
            yield Finding(where, caller, because, (Insert(stmt, WAIT, "after"), Import("torch")))


def write_on_main_only(module: Module, call: ast.Call) -> tuple[Edit, ...]:
    """Edits that make every rank but 0 write to ``os.devnull``; none for ``open(path, "r+")``."""
    path, mode = path_of(module, call), mode_of(module, call)
    if path is None or (isinstance(mode, ast.Constant) and str(mode.value).startswith("r")):
        return ()
    code = f"{module.conjunct(path)} if is_main_process() else"
    edits = (Define("is_main_process"), Import("os"))
    if opened_path(module, call) is None:
        return (Rewrite(path, f"{code} os.devnull"), *edits)
    code = f"{code} Path(os.devnull)"
    in_parentheses = code if isinstance(path, ast.BinOp) else f"({code})"
    return (Rewrite(path, in_parentheses), *edits, Import("pathlib", "Path"))
