"""Let rank 0 fetch a file that is not there before the others look for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..analysis.effects.early_reads import EXISTS, early_reads
from ..analysis.effects.file_effects import file_uses
from ..analysis.language.conditions import may_differ_by_rank
from ..analysis.language.names import answered_once
from ..analysis.language.training_calls import GRADLESS
from ..analysis.ranks.barrier_turns import goes_in_turn
from ..analysis.ranks.before_group import runs_before_group
from ..analysis.ranks.rank_reach import RANKS, is_surely_entered, roles_reaching
from ..analysis.training.program import Program
from ..editing.edits import Edit, Import, Insert
from ..source.module import Module
from ..source.tree import (
    FUNCTIONS,
    Function,
    argument,
    everywhere,
    is_elif,
    is_false,
    is_inside,
    is_true,
    keyword,
    mentions,
    position,
    within,
)
from .written_by_one import is_same_on_all_ranks

# Functions and methods that fetch files from elsewhere or unpack them.
FETCHES = {
    *("urlretrieve", "urlopen", "download", "download_url", "download_file", "extractall"),
    *("extract", "unpack_archive", "download_and_extract_archive", "cached_download"),
    *("download_file_from_google_drive", "extract_archive", "download_from_url"),
}
SHELLS = ("system", "run", "call", "check_call", "check_output", "Popen")
TOOLS = ("wget", "curl", "unzip", "tar ", "gdown", "git clone")
WRITES = {
    *("save", "savez", "savez_compressed", "savetxt", "dump", "to_csv", "to_pickle", "to_json"),
    *("to_parquet", "to_feather", "imwrite", "imsave", "write_text", "write_bytes"),
}
RENAMES = ("os.replace", "os.rename", "os.renames", "shutil.move")
RUNS = ("backward", "eval", "DataLoader")
SEVERAL = 2  # files that are written where one is missing: no rename makes both appear at once
MAX_DEPTH = 4
PER_EXAMPLE = ("__getitem__", "forward", "__iter__", "__next__")

WAIT = """\
if torch.distributed.is_initialized() and torch.distributed.get_rank() != 0:
    torch.distributed.barrier()  # rank 0 comes first"""
GO_ON = """\
if torch.distributed.is_initialized() and torch.distributed.get_rank() == 0:
    torch.distributed.barrier()"""


@answered_once
def fetching_tests(program: Program, module: Module) -> list[tuple[ast.If, ast.Call]]:
    """Tests whether a file exists, each with a call by which it is fetched where it does not."""
    if not any(map(module.spells, EXISTS)):
        return []
    found = []
    for test in module.nodes(ast.If):
        branch = branch_if_missing(module, test) or []
        calls = within(branch, ast.Call)
        loops = writes_in_loops(program, module)
        fetched = [call for call in calls if fetches(program, module, call, 0)]
        if not fetched and any(module.dotted(call.func) in RENAMES for call in calls):
            continue  # what was written elsewhere appears at once
        fetching = [
            call
            for call in calls
            if call in fetched or (call in loops and is_inside(loops[call], test))
        ]
        writing = [call for call in calls if not fetching for _ in writes(program, module, call)]
        if len(writing) < SEVERAL and not fetching:
            own = [call for call in calls if any(program.callees(module, call))]
            writing = own if own and reads_back(program, module, branch) else []
        if fetching or (writing and not runs_model(program, module, branch)):
            found.append((test, (fetching or writing)[0]))
    return found


def reads_back(program: Program, module: Module, branch: list[ast.stmt]) -> bool:
    """Whether code reads what rank 0 alone has written there: a rank that made it has no file."""
    bodies = [(module, branch)]
    bodies += [
        (where, function.body) for where, function in program.functions_below(module, *branch)
    ]
    return any(True for where, body in bodies for _ in early_reads(program, where, body))


def runs_model(program: Program, module: Module, branch: list[ast.stmt]) -> bool:
    """Whether code trains or evaluates, where ranks may have parts of the data, and meet."""
    below = program.functions_below(module, *branch)
    loops: list[ast.AST] = [each.loop for each in program.evaluations]
    loops += [each.steps for each in program.train_loops]
    places = [*branch, *(function for _, function in below)]
    return any(
        any(is_inside(loop, place) or loop is place for loop in loops)
        or any(where.last_name(call.func) in RUNS for call in everywhere(place, ast.Call))
        for where, place in (*((module, each) for each in branch), *below)
    ) or any(mentions(place, name) for place in places for name in GRADLESS)


def writes(program: Program, module: Module, call: ast.Call, depth: int = 0) -> Iterator[ast.Call]:
    """The calls by which a call writes whole files, itself or in functions of the program."""
    own = program.callees(module, call)
    if module.last_name(call.func) in WRITES and not own:
        yield call
    for where, function in own if depth < MAX_DEPTH else ():
        for inner in within(function.body, ast.Call):
            yield from writes(program, where, inner, depth + 1)


def branch_if_missing(module: Module, test: ast.If) -> list[ast.stmt] | None:
    """What runs where a file is not there: also behind ``if os.path.exists(path): return``."""
    asked = [c for c in everywhere(test.test, ast.Call) if module.last_name(c.func) in EXISTS]
    if not asked:
        return None
    if any(isinstance(module.parents[call], ast.UnaryOp) for call in asked):
        return test.body
    if test.orelse:
        return test.orelse
    if test.test is asked[0] and isinstance(test.body[-1], ast.Return):
        block = module.body(test)
        return block[block.index(test) + 1 :]
    return None


def fetches(program: Program, module: Module, call: ast.Call, depth: int) -> bool:
    """Whether a call fetches, unpacks or fills files, itself or in a function of the program."""
    last = module.last_name(call.func)
    own = program.callees(module, call)
    if own:
        return depth < MAX_DEPTH and any(fetches_in(program, *each, depth + 1) for each in own)
    if last in FETCHES:
        return True
    if module.dotted(call.func) == "requests.get":
        return True
    if module.dotted(call.func) == "lmdb.open":
        reads, makes = keyword(call, "readonly"), keyword(call, "create")
        return not (reads and is_true(reads.value)) and not (makes and is_false(makes.value))
    if module.dotted(call.func) == "h5py.File":  # which, as lmdb's, is filled before it is read
        mode = argument(call, 1, "mode")
        return isinstance(mode, ast.Constant) and str(mode.value).startswith(("w", "x"))
    if last == "open" and is_filled_in_parts(module, call):
        return True
    return last in SHELLS and any(
        isinstance(part.value, str) and any(tool in part.value for tool in TOOLS)
        for part in everywhere(call, ast.Constant)
    )


def is_filled_in_parts(module: Module, call: ast.Call) -> bool:
    """``with open(path, "wb") as file:`` around a loop that writes one part after the other."""
    mode = argument(call, 1, "mode")
    around = module.statement(call)
    return (
        isinstance(mode, ast.Constant)
        and str(mode.value).startswith("w")
        and isinstance(around, ast.With)
        and any(
            isinstance(inner.func, ast.Attribute) and inner.func.attr == "write"
            for kind in (ast.For, ast.While)
            for loop in within(around.body, kind)
            for inner in within([loop], ast.Call)
        )
    )


@answered_once
def writes_in_loops(program: Program, module: Module) -> dict[ast.Call, ast.stmt]:
    """Calls that write one file after the other, as the parts of a data set, with their loops."""
    return {
        use.call: stmt
        for use in file_uses(module)
        if use.what == "write" and use.path is not None
        for stmt in statements_around(module, use.call)
        if isinstance(stmt, ast.For | ast.While)
    }


@answered_once
def fetches_in(program: Program, module: Module, function: Function, depth: int) -> bool:
    """Whether any call in a function fetches or unpacks files."""
    in_loops = writes_in_loops(program, module)
    calls = within(function.body, ast.Call)
    return any(call in in_loops or fetches(program, module, call, depth) for call in calls)


def is_fetched_in_turn(program: Program, module: Module, node: ast.AST, depth: int = 0) -> bool:
    """Whether a file is written where rank 0 comes first, or will when DF608 is through.

    Also by a function, all of whose calls stand there.
    """
    if is_fetched_here(program, module, node) or (
        depth == 0 and goes_in_turn(program, module, node)
    ):
        return True
    function = module.function(node)
    callers = [] if function is None or depth > MAX_DEPTH else program.callers(function)
    return bool(callers) and all(
        is_fetched_in_turn(program, *caller, depth + 1) for caller in callers
    )


def is_fetched_here(program: Program, module: Module, node: ast.AST) -> bool:
    """Whether a place runs where the file of a test is missing, and rank 0 looks for it first."""
    return any(
        any(is_inside(node, stmt) for stmt in branch_if_missing(module, test) or [])
        and (goes_in_turn(program, module, test) or rank_0_first(program, module, test))
        for test, _ in fetching_tests(program, module)
    )


def statements_around(module: Module, node: ast.AST) -> Iterator[ast.stmt]:
    """The statement of a node and those around it in its function."""
    for each in (node, *module.ancestors(node)):
        if isinstance(each, FUNCTIONS):
            return
        if isinstance(each, ast.stmt):
            yield each


def rank_0_first(program: Program, module: Module, test: ast.If) -> list[tuple[Module, Edit]]:
    """Edits that let rank 0 pass a test for a file first; none where ranks may not meet there."""
    whole = test
    while isinstance(above := module.parents[whole], ast.If) and is_elif(above, whole):
        whole = above
    anchors = list(anchors_of(program, module, whole, 0))
    if not anchors or None in anchors:
        return []
    edits: list[tuple[Module, Edit]] = []
    for place in dict.fromkeys(anchors):
        assert place is not None
        where, stmt = place
        if runs_before_group(program, where, stmt):
            return []
        edits += [
            (where, Insert(stmt, WAIT)),
            (where, Insert(stmt, GO_ON, "after")),
            (where, Import("torch")),
        ]
    return edits


def anchors_of(
    program: Program, module: Module, stmt: ast.stmt, depth: int
) -> Iterator[tuple[Module, ast.stmt] | None]:
    """The statements to be passed by rank 0 first; None where that is not provably right."""
    function = module.function(stmt)
    if depth > MAX_DEPTH or meets_below(program, module, stmt):
        yield None
        return
    if (
        not leaves_function(stmt)
        and not exits_above(module, function, stmt)
        and is_met(module, stmt)
    ):
        if passed_alike(program, module, stmt, 0):
            yield module, stmt
        else:
            yield None
        return
    callers = [] if function is None else program.callers(function)
    if not callers:
        yield None
    for where, call in callers:
        yield from anchors_of(program, where, where.statement(call), depth + 1)


def meets_below(program: Program, module: Module, stmt: ast.stmt) -> bool:
    """Whether code under a statement has ranks meet itself."""
    seen: set[Function] = set()
    pending: list[tuple[Module, ast.AST]] = [(module, stmt)]
    while pending:
        where, node = pending.pop()
        for call in everywhere(node, ast.Call):
            if where.last_name(call.func) in ("barrier", "first_on_main", "all_reduce", "backward"):
                return True
            for home, function in program.callees(where, call):
                if function not in seen:
                    seen.add(function)
                    pending.append((home, function))
    return False


def leaves_function(stmt: ast.stmt) -> bool:
    """Whether a statement may end its function, or a loop around it."""
    return any(within([stmt], kind) for kind in (ast.Return, ast.Break, ast.Continue, ast.Yield))


def exits_above(module: Module, function: Function | None, stmt: ast.stmt) -> bool:
    """Whether ranks may have left the function above a statement, each by an answer of its own."""
    body = module.tree.body if function is None else function.body
    return any(
        position(leaving) < position(stmt)
        and any(
            isinstance(up, ast.If) and may_differ_by_rank(module, up.test)
            for up in module.ancestors(leaving)
        )
        for leaving in within(body, ast.Return)
    )


def is_met(module: Module, stmt: ast.stmt) -> bool:
    """Whether all ranks that enter the function come to a statement, equally often."""
    for up in module.ancestors(stmt):
        if isinstance(up, FUNCTIONS):
            return not up.name.startswith(PER_EXAMPLE)
        if isinstance(up, ast.Try | ast.While | ast.Lambda):
            return False
        if isinstance(up, ast.If) and may_differ_by_rank(module, up.test):
            return False
        if isinstance(up, ast.For) and not is_same_on_all_ranks(module, up.iter):
            return False
    return True


def passed_alike(program: Program, module: Module, stmt: ast.stmt, depth: int) -> bool:
    """Whether all ranks come to a statement equally often, through all callers."""
    function = module.function(stmt)
    if not roles_reaching(program, module, stmt) >= RANKS or not is_met(module, stmt):
        return False
    if function is None:
        return True
    if depth > MAX_DEPTH or not is_surely_entered(program, function):
        return False
    if program.possible_callers(function) or exits_above(module, function, stmt):
        return False
    return all(
        passed_alike(program, where, where.statement(call), depth + 1) and not is_lazy(where, call)
        for where, call in program.callers(function)
    )


def is_lazy(module: Module, call: ast.Call) -> bool:
    """Whether a call may not be made where it stands: in a lambda, a list, ``a or b()``."""
    stmt = module.statement(call)
    lazy = (ast.Lambda, ast.BoolOp, ast.IfExp, ast.ListComp, ast.GeneratorExp, ast.DictComp)
    return any(isinstance(up, lazy) and is_inside(up, stmt) for up in module.ancestors(call))
