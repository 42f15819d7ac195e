"""A rank meets the folder that another has just made, and refuses to go on.

What         The script raises where its output folder or file exists, or is not empty, or asserts
             that it is not there, so as to overwrite nothing, and makes it, or writes into it, in
             the lines below, or in the other branch. It may ask an option first. Or it counts up
             to a name that is free, and makes that.
At run time  The first rank makes the folder; another, some milliseconds later, finds it, raises,
             and ends the job: on an empty disk, now and then. Where it counts, a late rank takes
             the next name: its files lie in another folder.
Example      if os.path.exists(folder): raise FileExistsError(folder)
             os.makedirs(folder)
Fix          A barrier in between: all ranks have looked before one makes it. Only reported where
             that is before the process group, under an elif, or where rank 0 may come alone.
Fix safety   Safe: a lone process meets no barrier.
Source       torch.distributed.barrier
"""

import ast
from collections.abc import Iterator

from ..analysis.effects.path_text import text_of_path
from ..analysis.effects.written_paths import names_rank
from ..analysis.language.process_exits import exit_call
from ..analysis.ranks.before_group import runs_before_group
from ..analysis.ranks.rank_reach import RANKS, is_doubtful, roles_reaching
from ..analysis.training.program import Program
from ..editing.edits import Edit, Import, Insert, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.written_by_one import runs_for_some_alone, runs_in_save_pretrained
from ..source.module import Module
from ..source.tree import argument, everywhere, is_elif, is_inside, precedes, same_code, within

CODE, SEVERITY, SAFETY = "DF610", Severity.DEGRADED, Safety.SAFE

Test = ast.If | ast.Assert
Search = ast.For | ast.While
ASKS = ("exists", "isdir", "isfile", "is_dir", "is_file")
FOLDERS = ("makedirs", "mkdir")
MAKES = (*FOLDERS, "open", "save")
WORDS = ("name", "path", "file", "f", "log_dir", "logdir", "filename")
# What lies in the folder from then on.
FILLS = (*MAKES, "SummaryWriter", "FileHandler", "basicConfig")
EMPTY = ("listdir", "iterdir", "scandir")
LOOKED_NAME = "was_there"
BARRIERS = ("barrier", "monitored_barrier", "wait_for_everyone")
WRAPPER = "DistributedDataParallel"  # whose making all ranks wait for
LOOKED = """\
if torch.distributed.is_initialized():
    torch.distributed.barrier()  # all ranks have looked"""


def findings(program: Program) -> Iterator[Finding]:
    if not program.calls_to("init_process_group") or not program.train_loops:
        return
    for module in program.modules:
        tests: list[Test] = [*module.nodes(ast.If), *module.nodes(ast.Assert)]
        for stmt in tests:
            asks = refusing_call(module, stmt)
            path = None if asks is None else asked_path(module, asks)
            if asks is None or path is None or not program.is_live(module, stmt):
                continue
            if names_rank(program, module, path):
                continue
            made = made_below(program, module, stmt, path, kinds_of(module, asks))
            if made is None or not roles_reaching(program, module, stmt) >= RANKS:
                continue
            how = "gets a file" if asks_for_more(module, stmt) else "is made"
            because = f"{module.text(path)} {how} in line {made.lineno}, by a rank that is ahead"
            if not runs_before_group(program, module, stmt):
                edits = all_look(module, stmt, made) if all_come(program, module, stmt) else ()
                yield Finding(module, stmt, because, edits)
            elif runs_before_group(program, module, made):
                because += ": do both behind init_process_group"
                yield Finding(module, stmt, because)
        yield from names_counted_up(program, module)


def names_counted_up(program: Program, module: Module) -> Iterator[Finding]:
    """The findings of loops that look for a free name, of which the lines below make something."""
    for loop, asks in searches(module):
        path = asked_path(module, asks)
        if path is None or not program.is_live(module, loop) or names_rank(program, module, path):
            continue
        made = made_below(program, module, loop, path, kinds_of(module, asks))
        if made is None or not roles_reaching(program, module, loop) >= RANKS:
            continue
        because = f"line {made.lineno} makes the name that is free, and another rank takes the next"
        if not runs_before_group(program, module, loop):
            waits_once = all_come(program, module, loop)
            edits = (Insert(loop, LOOKED, "after"), Import("torch")) if waits_once else ()
            yield Finding(module, loop, because, edits)
        elif runs_before_group(program, module, made):
            yield Finding(module, loop, f"{because}: do both behind init_process_group")


def searches(module: Module) -> Iterator[tuple[Search, ast.Call]]:
    """Loops that end at a name which nothing has: ``while os.path.exists(f"run{n}"): n += 1``."""
    for loop in module.nodes(ast.While):
        if isinstance(loop.test, ast.Call) and module.last_name(loop.test.func) in ASKS:
            yield loop, loop.test
    for test in module.nodes(ast.If):
        match test:
            case ast.If(
                test=ast.UnaryOp(op=ast.Not(), operand=ast.Call() as asks), body=[ast.Break()]
            ):
                around = module.parents[test]
                if module.last_name(asks.func) in ASKS and isinstance(around, Search):
                    yield around, asks


def all_come(program: Program, module: Module, stmt: ast.stmt) -> bool:
    """Whether known calls lead all ranks to a test, and none leads rank 0 there alone."""
    return not (
        is_doubtful(program, module, stmt)
        or runs_for_some_alone(program, module, stmt)
        or runs_in_save_pretrained(program, module, stmt)
    )


def all_look(module: Module, stmt: Test, made: ast.Call) -> tuple[Edit, ...]:
    """Edits that let no rank make a path before all have looked; none where a test is an elif."""
    if isinstance(stmt, ast.Assert) or not is_inside(made, stmt):
        return (Insert(stmt, LOOKED, "after"), Import("torch"))
    if is_elif(module.parents[stmt], stmt) or module.spells(LOOKED_NAME):
        return ()
    code = f"{LOOKED_NAME} = {module.text(stmt.test)}\n{LOOKED}"
    return (Insert(stmt, code), Rewrite(stmt.test, LOOKED_NAME), Import("torch"))


def ends(module: Module, stmt: ast.stmt) -> bool:
    """``raise`` and ``sys.exit()``."""
    return isinstance(stmt, ast.Raise) or exit_call(module, stmt) is not None


def refusing_call(module: Module, stmt: Test) -> ast.Call | None:
    """The call of ``if os.path.exists(path): raise``, with whatever else is asked beside it.

    Also of ``assert not os.path.exists(path)``.
    """
    if isinstance(stmt, ast.Assert):
        return next(
            (
                each.operand
                for each in (stmt.test, *getattr(stmt.test, "values", ()))
                if isinstance(each, ast.UnaryOp)
                and isinstance(each.operand, ast.Call)
                and module.last_name(each.operand.func) in ASKS
            ),
            None,
        )
    parts = (
        stmt.test.values
        if isinstance(stmt.test, ast.BoolOp) and isinstance(stmt.test.op, ast.And)
        else [stmt.test]
    )
    steps = (*within(stmt.body, ast.Raise), *within(stmt.body, ast.Expr))
    if not any(ends(module, each) for each in steps):
        return None
    if any(isinstance(part, ast.UnaryOp) and asks_for_kind(module, part) for part in parts):
        return None  # exists(path) and not isfile(path): what is made is a file
    for part in parts:
        if isinstance(part, ast.Call) and module.last_name(part.func) in ASKS:
            return part
    return next(
        (call for part in parts for call in listings(module, part) if not says_none(part)), None
    )


def listings(module: Module, test: ast.expr) -> list[ast.Call]:
    """``os.listdir(path)`` of a test, ``len(os.listdir(path)) > 0``."""
    return [call for call in everywhere(test, ast.Call) if module.dotted(call.func) == "os.listdir"]


def says_none(test: ast.expr) -> bool:
    """Whether a test is true where nothing is there: ``not files``, ``len(files) == 0``."""
    is_not = isinstance(test, ast.UnaryOp)
    return is_not or any(
        not isinstance(each, ast.NotEq | ast.Gt) for each in getattr(test, "ops", ())
    )


def asked_path(module: Module, asks: ast.Call) -> ast.expr | None:
    """The path that a call asks for: its argument, or the object that it is a method of."""
    if module.dotted(asks.func).startswith(("os.path.", "os.listdir")):
        return argument(asks, 0, "path")
    return asks.func.value if isinstance(asks.func, ast.Attribute) else None


def kinds_of(module: Module, asks: ast.Call) -> tuple[str, ...]:
    """The calls that make what a call asks for: ``isfile`` is false of a folder."""
    name = module.last_name(asks.func)
    if name in ("isfile", "is_file"):
        return tuple(each for each in MAKES if each not in FOLDERS)
    return FOLDERS if name in ("isdir", "is_dir") else MAKES


def asks_for_more(module: Module, stmt: Test) -> bool:
    """Whether a test asks what lies in a folder, which may be there as long as it is empty."""
    return any(module.last_name(call.func) in EMPTY for call in everywhere(stmt.test, ast.Call))


def asks_for_kind(module: Module, test: ast.expr) -> bool:
    """Whether a test asks what kind of thing lies at a path."""
    return any(module.last_name(call.func) in ASKS[1:] for call in everywhere(test, ast.Call))


def made_below(
    program: Program,
    module: Module,
    stmt: Test | Search,
    path: ast.expr,
    kinds: tuple[str, ...],
) -> ast.Call | None:
    """The first call behind a test that makes what it asked for, with no barrier in between.

    Where the folder may be there as long as it is empty, it is the first that writes into it. Of
    files, where the test itself refuses: one that asks more may be about a checkpoint.
    """
    text = text_of_path(program, module, path)
    is_full = not isinstance(stmt, Search) and asks_for_more(module, stmt)
    refuses = isinstance(stmt, ast.Assert | Search) or ends(module, stmt.body[-1])
    makes = [each for each in kinds if each in FOLDERS or refuses]
    other_branch = stmt.orelse if isinstance(stmt, ast.If) else []
    for call in within(module.scope_statements(stmt), ast.Call):
        if not precedes(stmt, call) and not any(is_inside(call, each) for each in other_branch):
            continue
        name = module.last_name(call.func)
        if waits(program, module, call, *((WRAPPER,) if is_full else ())):
            return None
        if name not in (FILLS if is_full else makes):
            continue
        target = argument(call, 1 if name == "save" else 0, *WORDS)
        if target is None or (name == "mkdir" and module.dotted(call.func) != "os.mkdir"):
            target = call.func.value if isinstance(call.func, ast.Attribute) else None
        if isinstance(target, ast.IfExp):
            target = target.body  # rank 0 alone writes it
        if target is None or only_reads(name, call):
            continue
        if is_full:
            own = text_of_path(program, module, target)
            if own.startswith(f"{text}/") or (own == text and name in FILLS[len(MAKES) :]):
                return call
            continue
        is_same = text != "" and text_of_path(program, module, target) == text
        is_same |= isinstance(stmt, Search) and are_one_name(module, target, path)
        if is_same or same_code(target, path):
            return call
    return None


def are_one_name(module: Module, target: ast.expr, path: ast.expr) -> bool:
    """Whether a path behind a loop is what the loop has looked for, by whatever name."""
    values = [value for each in (target, path) for value in module.alternatives(each, each)]
    return any(same_code(value, path) or same_code(value, target) for value in values)


def waits(program: Program, module: Module, call: ast.Call, *others: str) -> bool:
    """Whether a call is a barrier, of torch or of accelerate, or of a function that has one.

    ``others`` name more calls in which ranks wait for each other.
    """
    names = (*BARRIERS, *others)
    return module.last_name(call.func) in names or any(
        where.last_name(inner.func) in names
        for where, function in program.callees(module, call)
        for inner in within(function.body, ast.Call)
    )


def only_reads(name: str, call: ast.Call) -> bool:
    """Whether ``open`` is told no mode that writes."""
    mode = argument(call, 1, "mode")
    return name == "open" and not (
        isinstance(mode, ast.Constant) and any(letter in str(mode.value) for letter in "wax")
    )
