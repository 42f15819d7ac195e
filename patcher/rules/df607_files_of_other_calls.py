"""Every rank writes, copies or removes the same file.

What         A statement that every rank reaches writes a file by other calls than open() and
             torch.save: shutil.copyfile, to_csv, savefig, numpy.save, os.remove and their kin, the
             save() of a picture of Pillow's, and commands like `cp` and `rm` that it runs.
At run time  Ranks write over each other's bytes, copy a file that rank 0 is still writing, or fail
             because another one has removed it first. A rank that lists a folder later than rank 0
             removes what rank 0 has written since, also where its errors are caught.
Example      shutil.copyfile("checkpoint.pth.tar", "model_best.pth.tar")
Fix          Rank 0 alone runs the statement; where all ranks use the file behind it, they wait, and
             so does a removal behind what they read. A video that other lines fill is one of a
             temporary folder on other ranks. A file of h5py's that is opened by "r+" and only read
             is opened by "r".
             Only reported where the statement's own calls may be ones that all ranks have to make.
Fix safety   Safe: a lone process runs the statement as before.
Source       https://docs.python.org/3/library/shutil.html
"""

import ast
from collections.abc import Iterator

from ..analysis.effects.effects import Kind, Reached, direct_effects
from ..analysis.effects.file_effects import (
    BUFFERS,
    LOGURU,
    OPENED_BY_MODE,
    WRITERS,
    PathKind,
    file_uses,
    saves_itself,
)
from ..analysis.effects.file_locks import holds_file_lock
from ..analysis.effects.only_read import is_only_read
from ..analysis.effects.path_text import text_of_path
from ..analysis.effects.shell_commands import is_command
from ..analysis.effects.written_paths import (
    dealt_loops,
    is_named_by_share,
    is_of_listing,
    may_be_named_by_share,
    names_rank,
)
from ..analysis.language.name_flow import names_in, roots, spread
from ..analysis.ranks.before_group import runs_before_group
from ..analysis.ranks.certain_reach import surely_on_every_rank
from ..analysis.ranks.divergence_walk import enumerated_name
from ..analysis.ranks.rank_reach import Role, roles_reaching
from ..analysis.training.program import Program
from ..editing.edits import Define, Edit, Import, Insert, Rewrite
from ..editing.helpers import helper_names
from ..findings import Finding, Safety, Severity
from ..fixes.left_to_main import may_be_left_to_main
from ..fixes.plain_functions import only_computes
from ..fixes.process_group import WAIT, only_on_main
from ..fixes.rank_0_first import is_fetched_in_turn
from ..fixes.written_by_one import (
    LOOKS,
    asks_for,
    in_lock_step,
    is_option,
    is_read_later,
    needs_all_ranks,
    runs_in_save_pretrained,
    tests_for_missing,
)
from ..source.branches import leaves_loop_on_file_errors, survives_file_errors
from ..source.module import Module
from ..source.tree import (
    Function,
    argument,
    argument_values,
    below,
    is_elif,
    is_inside,
    precedes,
    same_code,
    within,
)

CODE, SEVERITY, SAFETY = "DF607", Severity.DEGRADED, Safety.SAFE

# DF601 and DF602 know these; a writer of events has files of its own.
OTHER_RULES = {
    *("save", "save_pretrained", "save_model", "save_file", "open", "SummaryWriter"),
    *("FileHandler", "RotatingFileHandler", "TimedRotatingFileHandler", "basicConfig", "add"),
}
SAVE = {*WRITERS, *OPENED_BY_MODE, "os.open"} - {"torch.save", LOGURU}
# They open a file, which other lines fill.
FILLED_LATER = {"cv2.VideoWriter", "imageio.get_writer", "imageio.v2.get_writer"}
STILL_READING = WAIT.replace("rank 0 may still be writing", "another rank may still be reading")
KINDS = {Kind.WRITE: "writes", Kind.REMOVE: "removes"}
FORGIVING = ("missing_ok", "ignore_errors")


def findings(program: Program) -> Iterator[Finding]:
    if not program.has_ranks:
        return
    for module in program.modules:
        for found in direct_effects(program, module).values():
            for each in found:
                if (
                    each.effect.kind in KINDS
                    and is_of_all_ranks(program, module, each)
                    and not is_fetched_in_turn(program, module, each.effect.node)
                    and not holds_file_lock(program, module, each.effect.node)
                ):
                    yield judged(program, module, each)


def is_of_all_ranks(program: Program, module: Module, each: Reached) -> bool:
    """Whether every rank comes to write or remove what may be one file."""
    call, path = each.effect.node, each.path
    if not isinstance(call, ast.Call) or path is None:
        return False
    if each.path_kind in (PathKind.RANK, PathKind.MEMORY) or names_rank(program, module, path):
        return False
    if isinstance(path, ast.Call) and module.last_name(path.func) in BUFFERS:
        return False
    name = module.last_name(call.func)
    known = module.dotted(call.func) in SAVE or saves_itself(module, call)
    if (name in OTHER_RULES and not known) or is_named_by_share(program, module, call, path):
        return False
    function = module.function(call)
    if function is not None and function.name in helper_names():
        return False  # its callers are to be rank 0 alone
    forgives = any(word.arg in FORGIVING for word in call.keywords) or (
        survives_file_errors(call)
        and not (each.effect.kind is Kind.WRITE and leaves_loop_on_file_errors(call))
    )
    return (
        (not forgives or is_of_listing(module, path) or is_filled_anew(module, call, path))
        and program.is_live(module, call)
        and Role.OTHER in roles_reaching(program, module, call)
        and (
            surely_on_every_rank(program, module, call, with_options=True)
            or bool(asked_for(program, module, each))
        )
    )


def is_filled_anew(module: Module, remover: ast.Call, path: ast.expr) -> bool:
    """Whether lines below, in the same function, fill a folder again that was removed.

    A rank that comes late to ``rmtree(folder, ignore_errors=True)`` removes what rank 0 wrote.
    """
    return module.dotted(remover.func) == "shutil.rmtree" and any(
        use.what in ("make folder", "write")
        and use.path is not None
        and any(same_code(part, path) for part in below(use.path) if isinstance(part, ast.expr))
        and module.function(use.call) is module.function(remover)
        and precedes(remover, use.call)
        for use in file_uses(module)
    )


def asked_for(program: Program, module: Module, each: Reached) -> list[tuple[Module, ast.If]]:
    """The tests for a missing file around what writes it, behind which every rank uses it.

    ``if not os.path.exists("x.npy"): numpy.save("x.npy", x)``, and ``numpy.load("x.npy")``.
    """
    if each.effect.kind is not Kind.WRITE:
        return []
    tests = tests_for_missing(program, module, module.statement(each.effect.node), each.path)
    everyone = [
        asks_for_files_alone(where, test.test)
        and surely_on_every_rank(program, where, test, with_options=True)
        for where, test in tests
    ]
    return tests if all(everyone) else []


def asks_for_files_alone(module: Module, test: ast.expr) -> bool:
    """Whether a test is of files, and of options: ``args.anew or not os.path.exists(path)``."""
    match test:
        case ast.BoolOp(values=parts):
            return all(asks_for_files_alone(module, part) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=part):
            return asks_for_files_alone(module, part)
        case ast.Call(func=func):
            return module.last_name(func) in LOOKS
    return is_option(test)


def judged(program: Program, module: Module, each: Reached) -> Finding:
    """The finding of a place; with edits where rank 0 alone can run its statement."""
    call = each.effect.node
    assert isinstance(call, ast.Call)
    stmt = module.statement(call)
    text = " ".join(module.text(call.func).split())
    if module.dotted(call.func) == "h5py.File" and is_only_read(module, call):
        because = f"{text}() locks a file that may be changed, for one rank, and it is only read"
        mode = argument(call, 1, "mode")
        return Finding(module, call, because, () if mode is None else (Rewrite(mode, "'r'"),))
    because = f"every rank {KINDS[each.effect.kind]} a file by {text}()"
    is_block = isinstance(stmt, ast.With) and may_be_left_to_main(program, module, stmt)
    is_whole = is_block or isinstance(stmt, ast.Expr)
    if (whole := rewriting(program, module, each)) is not None:
        stmt, is_whole = whole, True
    if module.dotted(call.func) in FILLED_LATER and each.path is not None:
        return Finding(module, call, because, elsewhere(program, module, call, each.path))
    if not is_whole or may_concern_all(program, module, stmt, call):
        return Finding(module, call, because)
    if each.path is not None and is_numbered_by_share(program, module, call, each.path):
        return Finding(module, call, f"{because}, numbered by the batches of this rank alone")
    if each.path is not None and may_be_named_by_share(program, module, call, each.path):
        return Finding(module, call, f"{because}, unless each has examples of its own")
    early = runs_before_group(program, module, stmt)
    runs_command = is_command(module, call)
    if runs_command and early:
        return Finding(module, call, f"{because}, before the process group is made")
    edits: tuple[Edit, ...] = only_on_main(stmt, before_group=early)
    is_read = runs_command or (
        each.effect.kind is Kind.WRITE and is_read_later(module, stmt, each.path)
    )
    if is_read and not runs_in_save_pretrained(program, module, stmt):
        if not in_lock_step(program, module, stmt):
            return Finding(module, call, f"{because}; ranks may pass it unequally often")
        edits = (*edits, Insert(stmt, WAIT, "after"), Import("torch"))
    elif tests := asked_for(program, module, each):
        because += f", and reads it behind line {tests[0][1].lineno}, which asks for it"
        if not all(here is module and in_lock_step(program, here, test) for here, test in tests):
            return Finding(module, call, f"{because}; ranks may pass it unequally often")
        waits = tuple(Insert(test, WAIT, "after") for _, test in tests)
        edits = (*edits, *waits, Import("torch"))
    if each.effect.kind is Kind.REMOVE and not runs_command:
        reads = reads_beside(program, module, stmt, each.path)
        if any(precedes(read, stmt) for read in reads):
            place = loop_below(module, reads, stmt)
            if not in_lock_step(program, module, place):
                return Finding(module, call, f"{because}; ranks may pass it unequally often")
            edits = (Insert(place, STILL_READING), *edits, Import("torch"))
    return Finding(module, call, because, edits)


def rewriting(program: Program, module: Module, each: Reached) -> ast.If | None:
    """The test for a file around what reads it and writes it again, or else writes it first.

    ``if os.path.isfile(path): rows = pandas.concat([pandas.read_csv(path), rows])``: a rank that
    asks later than rank 0 has written would take the branch that reads.
    """
    for up in module.ancestors(each.effect.node):
        if isinstance(up, Function) or each.path is None or each.effect.kind is not Kind.WRITE:
            return None
        if not isinstance(up, ast.If) or not up.orelse or is_elif(module.parents[up], up):
            continue
        if not asks_for_files_alone(module, up.test) or not asks_for(module, up, each.path):
            continue
        reads = [
            use
            for use in file_uses(module)
            if use.what == "read" and use.path is not None and is_inside(use.call, up)
            if is_same_file(program, module, use.path, each.path)
        ]
        return up if reads and may_be_left_to_main(program, module, up) else None
    return None


def elsewhere(
    program: Program, module: Module, writer: ast.Call, path: ast.expr
) -> tuple[Edit, ...]:
    """Edits that let other ranks than 0 fill a file of a temporary folder, by the same lines."""
    stmt = module.statement(writer)
    is_passed_on = any(
        same_code(value, path)
        and module.last_name(call.func) != "print"
        and module.dotted(call.func) not in FILLED_LATER
        for call in within(module.scope_statements(stmt), ast.Call)
        for value in (argument_values(call) if precedes(stmt, call) else ())
    )
    if runs_before_group(program, module, stmt) or is_passed_on:
        return ()
    text = module.text(path)
    own = f"os.path.join(tempfile.mkdtemp(), os.path.basename({text}))"
    choice = f"{module.conjunct(path)} if is_main_process() else {own}"
    imports = Import("os"), Import("tempfile"), Import("torch")
    return (Rewrite(path, choice), Define("is_main_process"), *imports)


def is_numbered_by_share(program: Program, module: Module, call: ast.Call, path: ast.expr) -> bool:
    """Whether a file has the number of a batch that is another one on each rank, in no training."""
    training = [loop.steps for loop in program.train_loops]
    return any(
        loop not in training
        and names_in(path) & spread([loop], {enumerated_name(module, loop)}).names
        for loop in dealt_loops(program, module, call)
    )


def reads_beside(
    program: Program, module: Module, stmt: ast.stmt, path: ast.expr | None
) -> list[ast.Call]:
    """The calls in the same function that read a file on other ranks than rank 0 too.

    A function of the program that gets the path may read it.
    """
    uses = [(use.call, use.path) for use in file_uses(module) if use.what == "read"]
    uses += [
        (call, value)
        for call in within(module.scope_statements(stmt), ast.Call)
        for value in argument_values(call)
        if program.callees(module, call)
    ]
    return [
        call
        for call, used in uses
        if path is not None
        and used is not None
        and module.function(call) is module.function(stmt)
        and (is_same_file(program, module, used, path) or is_of_same_list(module, used, path))
        and Role.OTHER in roles_reaching(program, module, call)
    ]


def loop_below(module: Module, reads: list[ast.Call], stmt: ast.stmt) -> ast.stmt:
    """The outermost loop around a statement that has none of the reads in it, or the statement.

    Ranks wait ahead of it once: how often each comes to the statement in it may hang on the files.
    """
    inside = {up for call in reads for up in module.ancestors(call)}
    place = stmt
    for up in module.ancestors(stmt):
        if up in inside:
            break
        if isinstance(up, ast.For | ast.While):
            place = up
    return place


def is_of_same_list(module: Module, used: ast.expr, path: ast.expr) -> bool:
    """Whether ``used`` is of a loop over a list of which ``path`` comes too, as of another loop."""
    body = module.scope_statements(path)
    for loop in module.ancestors(used):
        if not isinstance(loop, ast.For) or path in within([loop], type(path)):
            continue
        passed = loop.iter.args if isinstance(loop.iter, ast.Call) else [loop.iter]
        lists = {each.id for each in passed if isinstance(each, ast.Name)}
        if (
            lists
            and names_in(used) & spread([loop], roots(loop.target)).names
            and names_in(path) & spread(body, lists).names
        ):
            return True
    return False


def is_same_file(program: Program, module: Module, first: ast.expr, second: ast.expr) -> bool:
    """Whether two paths are written alike, or put together alike: ``Path(name)`` and ``name``."""
    texts = [text_of_path(program, module, path) for path in (first, second)]
    return same_code(first, second) or texts[0] == texts[1]


def may_concern_all(program: Program, module: Module, stmt: ast.stmt, writer: ast.Call) -> bool:
    """Whether a statement calls a function that does more than compute, or gathers from ranks."""
    inner = [call for call in within(stmt, ast.Call) if call is not writer]
    return needs_all_ranks(program, module, stmt) or any(
        (
            program.resolve(module, call.func) is not None
            and not only_computes(program, module, call)
        )
        or any(word in module.last_name(call.func) for word in ("gather", "reduce", "barrier"))
        for call in inner
    )
