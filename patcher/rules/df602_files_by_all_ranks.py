"""A file or folder is made by every rank.

What         open(…, "w") or a logging.FileHandler that every rank reaches, or an evaluation
             function that writes and that every rank will run; a folder created after a check
             whether it exists.
At run time  Ranks overwrite each other's lines; makedirs fails on the rank that comes second.
Example      with open(os.path.join(args.output_dir, "predictions.txt"), "w") as f: …
Fix          Rank 0 alone writes; makedirs gets exist_ok=True. A block that fills what all ranks
             need behind it still runs on every rank, and writes to nowhere on the others.
Fix safety   Safe: a lone process writes as before. A FileHandler created before the process group
             is only reported: no process has a rank yet.
Source       os.makedirs, logging.handlers
"""

import ast
from collections.abc import Iterator

from ..analysis.program import Program
from ..analysis.rank_reach import (
    RANK_NAMES,
    RANKS,
    Role,
    is_rank_test,
    reached,
    reached_in_function,
)
from ..editing.edits import Define, Edit, Import, Insert, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.process_group import WAIT, only_on_main
from ..source.module import Module
from ..source.tree import (
    argument,
    bound_names,
    everywhere,
    is_inside,
    keyword,
    last_argument,
    names_within,
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
)
MUTATING_METHODS = (
    "append",
    "extend",
    "update",
    "add",
    "insert",
    "pop",
    "remove",
    "setdefault",
    "clear",
)


def findings(program: Program) -> Iterator[Finding]:
    for module in program.modules:
        for call in module.calls_to("makedirs"):
            if keyword(call, "exist_ok") is None and module.dotted(call.func) == "os.makedirs":
                last = last_argument(call)
                if last is not None:
                    yield Finding(
                        module,
                        call,
                        "another rank may make the folder first",
                        (Rewrite(last, ", exist_ok=True", after=True),),
                    )
        for call in module.calls_to("open"):
            if not is_for_writing(module, call) or is_rank_dependent(module, call):
                continue
            if everyone_writes(program, module, call):
                yield from single_writer(program, module, call)
        yield from log_handlers(program, module)


def log_handlers(program: Program, module: Module) -> Iterator[Finding]:
    """Log files that every rank of a group opens."""
    groups = [call for one in program.modules for call in one.calls_to("init_process_group")]
    for call in module.calls_to(*HANDLER_CLASSES):
        if not groups or not call.args or is_rank_dependent(module, call):
            continue
        if reached(program, module, call) < RANKS:
            continue
        function = module.function(call)
        if any(module.function(one) is function and one.lineno > call.lineno for one in groups):
            yield Finding(module, call, "every rank writes it, and the group comes later")
        else:
            yield Finding(module, call, "every rank writes it", write_on_main_only(module, call))


def is_for_writing(module: Module, call: ast.Call) -> bool:
    mode = argument(call, 1, "mode")
    return (
        module.dotted(call.func) in OPEN_FUNCTIONS
        and isinstance(mode, ast.Constant)
        and isinstance(mode.value, str)
        and any(letter in mode.value for letter in "wax+")
    )


def is_rank_dependent(module: Module, call: ast.Call) -> bool:
    """``open(path if is_main_process() else os.devnull, "w")``."""
    path = call.args[0] if call.args else None
    return isinstance(path, ast.IfExp) and is_rank_test(module, path.test)


def everyone_writes(program: Program, module: Module, call: ast.Call) -> bool:
    """Reached by all ranks, now or once every rank evaluates."""
    if program.evaluation_of(module, call) is not None:
        return Role.OTHER in reached_in_function(module, call)
    return Role.OTHER in reached(program, module, call)


def single_writer(program: Program, module: Module, call: ast.Call) -> Iterator[Finding]:
    """Guard the statement; where others need what it binds or fills, only the file is rank 0's."""
    stmt = module.statement(call)
    because = "every rank writes it"
    if isinstance(stmt, ast.Expr):  # json.dump(result, open(path, "w"))
        yield Finding(module, call, because, only_on_main(stmt))
        return
    wait: tuple[Edit, ...] = ()
    if is_read_later(module, stmt, call):
        because += " and reads it"
        if not in_lock_step(program, module, stmt):
            yield Finding(module, call, f"{because}; ranks may pass it unequally often")
            return
        wait = (Insert(stmt, WAIT, "after"),)
    if isinstance(stmt, ast.With) and not is_read_outside(module, stmt, changed_names(stmt)):
        yield Finding(module, call, because, (*only_on_main(stmt), *wait))
        return
    yield Finding(module, call, because, (*write_on_main_only(module, call), *wait))


def write_on_main_only(module: Module, call: ast.Call) -> tuple[Edit, ...]:
    """Edits by which all ranks go on, and rank 0 alone writes to the file."""
    path = call.args[0]
    nowhere = f"{module.text(path)} if is_main_process() else os.devnull"
    return (Rewrite(path, nowhere), Define("is_main_process"), Import("os"))


def is_read_later(module: Module, stmt: ast.stmt, call: ast.Call) -> bool:
    """Whether statements behind name the path, or parts of it, again."""
    body = module.body(stmt)
    behind, texts = body[body.index(stmt) + 1 :], path_literals(call)
    names = names_within(behind, path_names(module, call))
    return any(isinstance(name.ctx, ast.Load) for name in names) or (
        bool(texts) and any(node.value in texts for node in within(behind, ast.Constant))
    )


def changed_names(stmt: ast.With) -> set[str]:
    """Names that the statement binds, and names of objects that it may change."""
    files = set().union(*(bound_names(i.optional_vars) for i in stmt.items if i.optional_vars))
    names = bound_names(stmt)
    places: list[ast.Attribute | ast.Subscript] = [*within(stmt, ast.Attribute)]
    for node in (*places, *within(stmt, ast.Subscript)):
        base: ast.expr = node.value
        while isinstance(base, ast.Attribute | ast.Subscript):
            base = base.value
        changes = not isinstance(node.ctx, ast.Load) or (
            isinstance(node, ast.Attribute) and node.attr in MUTATING_METHODS
        )
        if isinstance(base, ast.Name) and changes:
            names.add(base.id)
    return names - files


def is_read_outside(module: Module, stmt: ast.stmt, names: set[str]) -> bool:
    """Whether the function reads one of the names below the statement, or around it in a loop."""
    loops = any(isinstance(up, (ast.For, ast.While)) for up in module.ancestors(stmt))
    return any(
        isinstance(name.ctx, ast.Load)
        and not is_inside(name, stmt)
        and (loops or name.lineno > stmt.lineno)
        for name in names_within(module.scope_statements(stmt), names)
    )


def in_lock_step(program: Program, module: Module, stmt: ast.stmt) -> bool:
    """Whether all ranks pass ``stmt`` equally often, so that a barrier may stand behind it.

    They do in the training loop, which deals as many batches to each, and in a loop over what is
    the same on every rank.
    """
    training = [loop for train in program.train_loops for loop in (train.steps, train.epochs)]
    return reached(program, module, stmt) >= RANKS and all(
        up in training or (isinstance(up, ast.For) and is_same_on_all_ranks(module, up.iter))
        for up in module.ancestors(stmt)
        if isinstance(up, ast.For | ast.While | ast.Try)
    )


def is_same_on_all_ranks(module: Module, source: ast.expr) -> bool:
    """Whether what a loop goes through is made of options and literals that all ranks share."""
    function = module.function(source)
    for name in within(source, ast.Name):
        parent = module.parents[name]
        if isinstance(parent, ast.Call) and parent.func is name:
            if name.id not in ("enumerate", "range", "zip", "len", "list", "sorted"):
                return False
            continue
        stores = module.stores.get((function, name.id), [])
        values = [module.parents[store] for store in stores]
        if not values or not all(
            isinstance(value, ast.Assign)
            and isinstance(value.value, ast.List)
            and reached_in_function(module, value) >= RANKS
            for value in values
        ):
            return False
        grown = [
            call
            for call in module.calls_to("append", "extend", "insert", "pop", "remove")
            if isinstance(call.func, ast.Attribute)
            and isinstance(call.func.value, ast.Name)
            and call.func.value.id == name.id
            and module.function(call) is function
        ]
        if not all(reached_in_function(module, call) >= RANKS for call in grown):
            return False
        if not all(is_option(module, arg) for call in grown for arg in call.args):
            return False
    return True


def is_option(module: Module, node: ast.expr) -> bool:
    """``args.test_filename`` or a literal."""
    if isinstance(node, ast.Constant):
        return True
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.attr not in RANK_NAMES)
    )


def path_names(module: Module, call: ast.Call) -> set[str]:
    """Names in the path that belong to this function alone."""
    function = module.function(call)
    if function is None:
        return set()
    names = {node.id for node in everywhere(call.args[0], ast.Name)}
    return names & bound_names(function.body) - parameters(function)


def path_literals(call: ast.Call) -> set[object]:
    """Literals in the path, by which a later line may open it again."""
    return {n.value for n in everywhere(call.args[0], ast.Constant) if n.value}
