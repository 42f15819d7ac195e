"""A cache of features may be read while another rank writes it.

What         A file that is read when it exists and written when it does not, by every rank, or by
             rank 0 while the others look for it; also by a function that gets its path, or puts it
             together. Barriers that let rank 0 go first are fine, and so is a file whose name
             differs from rank to rank.
At run time  A rank that comes a moment later finds half a file: EOFError, or an unpickling error;
             or two ranks write one file at the same time.
Example      if os.path.exists(cache): data = pickle.load(open(cache, "rb"))
             else: …; pickle.dump(data, open(cache, "wb"))
Fix          Rank 0 writes it under another name and renames it: the others find all of it, or none,
             and then make the features themselves.
Fix safety   Safe: a lone process leaves the same bytes under the same name. Features that depend on
             random numbers must be the same on every rank (DF404).
Source       os.replace (atomic on one file system)
"""

import ast
from collections.abc import Iterator

from ..analysis.effects.file_locks import holds_file_lock
from ..analysis.effects.met_between import waits_between
from ..analysis.effects.written_paths import is_memory, is_of_one_example, is_open_file
from ..analysis.models.wrapping import averages_otherwise
from ..analysis.ranks.by_choice import is_chosen
from ..analysis.ranks.manual_sharding import is_constant
from ..analysis.ranks.rank_0_ahead import comes_behind_rank_0
from ..analysis.ranks.rank_reach import (
    RANK_NAMES,
    RANKS,
    Role,
    is_doubtful,
    roles_reaching,
)
from ..analysis.training.program import Program
from ..editing.edits import Define, Edit, Replace
from ..findings import Finding, Safety, Severity
from ..fixes.handed_paths import handed_paths, is_handed_on, is_result, reads_instead
from ..fixes.looked_for_files import looked_for_elsewhere
from ..fixes.statements import arguments_in_order, save_on_main, with_gate
from ..source.branches import exclusive
from ..source.module import Module
from ..source.tree import (
    argument,
    argument_values,
    everywhere,
    is_inside,
    mentions,
    precedes,
    same_code,
)

CODE, SEVERITY, SAFETY = "DF406", Severity.ERROR, Safety.SAFE

READ_CALLS = ("load", "open", "read_bytes")


def findings(program: Program) -> Iterator[Finding]:
    for module in program.modules:
        for call, path, edits in whole_writes(module):
            function = module.function(call)
            reads = [
                read
                for read in module.calls_to(*READ_CALLS)
                if (precedes(read, call) or exclusive(read, call))
                and module.function(read) is function
                and not is_for_writing(read)
                and any(
                    is_same_path(module, part, path)
                    for part in (*argument_values(read), owner(read))
                )
                and Role.OTHER in roles_reaching(program, module, read)
            ]
            if holds_file_lock(program, module, call):
                reads = [read for read in reads if not holds_file_lock(program, module, read)]
            if is_left_behind(program, module, call):
                reads = [each for each in reads if not comes_behind_rank_0(program, module, each)]
            reads = [read for read in reads if not meet_between(program, module, read, call)]
            if not reads:
                told = [*handed_cache(program, module, call, path, edits)]
                yield from told or composed_cache(program, module, call, path, edits)
            if not reads or is_memory(module, path) or tells_ranks_apart(program, module, path):
                continue
            if roles_reaching(program, module, call) & RANKS and not ranks_wait(
                program, module, reads[0]
            ):
                because = f"another rank looks for it in line {reads[0].lineno}"
                severity = None
                is_asked_for = is_chosen(program, module, call)
                if is_asked_for:
                    because += ", where a user asked for it"
                if is_asked_for or is_doubtful(program, module, call):
                    severity = Severity.DEGRADED
                if is_of_one_example(module, call, path):
                    because += ", unless each rank has examples of its own"
                    severity, edits = Severity.DEGRADED, ()
                yield Finding(module, call, because, edits, severity=severity)


def is_left_behind(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether rank 0 alone writes a file, and the other ranks come when it has left."""
    return comes_behind_rank_0(program, module, call) and Role.OTHER not in roles_reaching(
        program, module, call
    )


def handed_cache(
    program: Program, module: Module, call: ast.Call, path: ast.expr, edits: tuple[Edit, ...]
) -> Iterator[Finding]:
    """The finding of a function that writes a cache where its callers have looked for one.

    Only where all of them read what is there in the place of writing it.
    """
    handed = [each for each in handed_paths(program, module, call, path) if not is_handed_on(*each)]
    reads = [read for read in map(reads_instead, handed) if read is not None]
    locked = all(holds_file_lock(program, module, each) for each in (call, *reads))
    if reads and not locked and roles_reaching(program, module, call) >= RANKS:
        because = f"another rank looks for it in line {reads[0].lineno}, and has it read"
        is_sure = all(reads_instead(each) is not None or is_result(each) for each in handed)
        yield Finding(module, call, because, edits if is_sure else (), severity=Severity.DEGRADED)


def composed_cache(
    program: Program, module: Module, call: ast.Call, path: ast.expr, edits: tuple[Edit, ...]
) -> Iterator[Finding]:
    """The finding of a function that puts the name of a cache together for which another looks."""
    look = looked_for_elsewhere(program, module, call, path)
    if look is None or not roles_reaching(program, module, call) & RANKS:
        return
    if is_memory(module, path) or tells_ranks_apart(program, module, path):
        return
    where, test = look
    if not holds_file_lock(program, module, call) and not ranks_wait(program, where, test):
        place = f"line {test.lineno}" if where is module else f"{where.source.path.name}"
        because = f"another rank may look for it in {place}"
        yield Finding(module, call, because, edits, severity=Severity.DEGRADED)


def is_same_path(module: Module, part: ast.expr, path: ast.expr) -> bool:
    """Whether two expressions are alike, and no name in them is bound again between them."""
    if not same_code(part, path):
        return False
    pairs = zip(everywhere(part, ast.Name), everywhere(path, ast.Name), strict=True)
    return exclusive(part, path) or all(
        module.definition(first, first) is module.definition(second, second)
        for first, second in pairs
    )


def meet_between(program: Program, module: Module, read: ast.Call, write: ast.Call) -> bool:
    """Whether the ranks meet between a read and a write, and so are all past the read by then."""
    if trains_between(program, module, read, write):
        return True
    comes_back = any(
        isinstance(up, ast.For | ast.While) and is_inside(read, up)
        for up in module.ancestors(write)
    )
    return (
        not comes_back
        and precedes(read, write)
        and waits_between(program, module, read, module.statement(write), together=True)
    )


def trains_between(program: Program, module: Module, read: ast.Call, write: ast.Call) -> bool:
    """Whether the ranks train between a read and a write."""
    function = module.function(read)
    loops = {loop.module.function(loop.steps): loop for loop in program.train_loops}
    own = [loop for owner, loop in loops.items() if loop.module is module and owner is function]
    steps: list[ast.AST] = [loop.steps for loop in own]
    steps += [each for loop in own if not is_inside(read, loop.steps) for each in loop.backwards]
    for owner in loops:
        steps += [
            call
            for where, call in (program.callers(owner) if owner is not None else ())
            if where is module and module.function(call) is function
        ]
    meets = program.calls_to("DistributedDataParallel") or averages_otherwise(program)
    return bool(meets) and any(
        precedes(read, step) and precedes(step, write) and not is_inside(read, step)
        for step in steps
    )


def is_for_writing(call: ast.Call) -> bool:
    mode = argument(call, 1, "mode")
    return isinstance(mode, ast.Constant) and str(mode.value).startswith(("w", "a", "x"))


def owner(call: ast.Call) -> ast.expr:
    """``path`` of ``path.exists()``."""
    return call.func.value if isinstance(call.func, ast.Attribute) else call.func


def whole_writes(module: Module) -> Iterator[tuple[ast.Call, ast.expr, tuple[Edit, ...]]]:
    """Calls that write a whole object, the path they write to, and edits that make them atomic."""
    for call in module.calls_to("save"):
        path = argument(call, 1, "f")
        is_plain = argument(call, 0, "obj") is not None and len(argument_values(call)) == 2
        if module.dotted(call.func) != "torch.save" or path is None or not is_plain:
            continue
        if not is_open_file(module, path):  # the same name may be another file's in each `with`
            yield call, path, save_on_main(module, call)
    for call in module.calls_to("dump"):
        target = argument(call, 1, "file", "fp")
        stmt = module.statement(call)
        if not (isinstance(stmt, ast.Expr) and stmt.value is call) or target is None:
            continue
        if not isinstance(target, ast.Name):
            yield from write_through_file(module, stmt, target, call, target)
            continue
        block = module.parents[stmt]
        if not isinstance(block, ast.With) or len(block.items) > 1 or block.body != [stmt]:
            continue
        (item,) = block.items
        if isinstance(item.optional_vars, ast.Name) and item.optional_vars.id == target.id:
            yield from write_through_file(module, block, item.context_expr, call, target)


def write_through_file(
    module: Module, stmt: ast.stmt, opening: ast.expr, call: ast.Call, target: ast.expr
) -> Iterator[tuple[ast.Call, ast.expr, tuple[Edit, ...]]]:
    """The write of ``stmt``, which does nothing but dump into what ``opening`` opens."""
    if (
        not isinstance(opening, ast.Call)
        or module.dotted(opening.func) != "open"
        or len(argument_values(opening)) != 2
        or (path := argument(opening, 0, "file")) is None
        or not isinstance(mode := argument(opening, 1, "mode"), ast.Constant)
        or not str(mode.value).startswith("w")
    ):
        return
    arguments = arguments_in_order(call)
    texts = [with_file(module, word, target) for word in arguments]
    write = f"lambda file: {module.text(call.func)}({', '.join(texts)})"
    code = f"write_on_main({module.text(path)}, {module.text(mode)}, {write})"
    gate = with_gate(module, stmt)  # what it asks, write_on_main asks as well
    asks = isinstance(gate, ast.If) and module.text(gate.test) == "is_main_process()"
    edits: tuple[Edit, ...] = (Replace(gate if asks else stmt, code), Define("write_on_main"))
    yield call, path, () if mentions(call, "file") else edits


def with_file(module: Module, word: ast.expr | ast.keyword, target: ast.expr) -> str:
    """The text of an argument, with ``file`` for the file that is written to."""
    if word is target:
        return "file"
    if isinstance(word, ast.keyword) and word.value is target:
        return f"{word.arg}=file"
    return module.text(word)


def tells_ranks_apart(program: Program, module: Module, path: ast.expr) -> bool:
    """Whether the name of the file contains a rank, and not a constant of that name."""
    for value in (path, *module.alternatives(path, path)):
        if any(node.attr in (*RANK_NAMES, "get_rank") for node in everywhere(value, ast.Attribute)):
            return True
        for name in everywhere(value, ast.Name):
            if name.id in (*RANK_NAMES, "get_rank") and not is_constant(program, module, name):
                return True
    return False


def ranks_wait(program: Program, module: Module, read: ast.Call) -> bool:
    """Whether the other ranks wait for rank 0 before the read, here or above each call."""
    if has_barrier_above(program, module, read):
        return True
    function = module.function(read)
    callers = program.callers(function) if function is not None else []
    return bool(callers) and all(has_barrier_above(program, where, call) for where, call in callers)


def has_barrier_above(program: Program, module: Module, node: ast.expr) -> bool:
    """Whether a barrier for all ranks but 0 stands above ``node``, in a block around it.

    Not where rank 0 has met them since, as behind the download of a model.
    """
    blocks = {
        id(module.parents[up]) for up in (node, *module.ancestors(node)) if up in module.parents
    }
    above = [
        roles_reaching(program, module, barrier) & RANKS
        for barrier in module.calls_to("barrier")
        if precedes(barrier, node)
        and module.function(barrier) is module.function(node)
        and id(module.parents[module.parents[module.statement(barrier)]]) in blocks
    ]
    met = [roles for roles in above if roles in ({Role.OTHER}, {Role.MAIN})]
    return bool(met) and met[-1] == {Role.OTHER}
