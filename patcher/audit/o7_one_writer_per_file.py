"""Each file has one writer unless its path names the rank, and is read behind a barrier.

What              A file or folder that several ranks come to write, make or remove has a path that
                  differs between them. What rank 0 alone writes, the others read only behind a
                  collective. This goes for to_csv, savefig, to_pickle, np.save, logging handlers,
                  os.mkdir, Path.mkdir and os.remove as for open and torch.save.
At run time       Ranks write over each other's lines; mkdir fails on the rank that comes second; a
                  file is read before it is there, or half of it.
How it is judged  Each place that writes is followed up to its callers: do rank 0 and the others
                  both come to it? The path is followed through variables and parameters: whatever
                  may name a rank, a card, a process or a time is taken to do so. Files in memory
                  are none. Reads are compared with the writes above them in the same function,
                  through the functions that both call.
When unknown      A test that sounds as if it asked for the rank, and that cannot be evaluated; a
                  method that is called on objects of unknown class only, or not at all.
Source            https://docs.python.org/3/library/os.html#os.makedirs
"""

import ast
from collections.abc import Iterator

from ..analysis.effects.early_reads import OWN_FILES, early_reads
from ..analysis.effects.effects import Kind, Reached, direct_effects
from ..analysis.effects.file_effects import PathKind
from ..analysis.effects.file_locks import holds_file_lock
from ..analysis.effects.shell_commands import is_command
from ..analysis.effects.written_paths import is_named_by_share, is_of_listing
from ..analysis.language.conditions import tests_before
from ..analysis.ranks.before_group import place_behind_group, runs_before_group
from ..analysis.ranks.rank_reach import RANKS, UNKNOWN, is_surely_entered, values_by_role
from ..analysis.training.program import Program, is_left_out_by_calls
from ..source.branches import survives_file_errors
from ..source.module import Module
from ..source.tree import everywhere, keyword
from .meeting import asks_for_file, sounds_of_the_first
from .ranks import has_several_ranks, is_managed, may_name_rank, ranks_at
from .verdict import AuditVerdict, unknown, violated

CODE = "O7"
CHANGES = {
    Kind.WRITE: "write",
    Kind.MAKE_FOLDER: "make",
    Kind.REMOVE: "remove",
}
TOO_LATE = "behind the end of the process group, where every rank takes itself for the first"
FORGIVING = ("exist_ok", "missing_ok", "ignore_errors")


def verdicts(program: Program, original: Program | None) -> Iterator[AuditVerdict]:
    if not has_several_ranks(program) or is_managed(program):
        return
    late: dict[ast.AST, Module] = {}
    for module in program.modules:
        for found in direct_effects(program, module).values():
            for each in found:
                place = each.effect.node
                if (
                    each.effect.kind in CHANGES
                    and program.is_live(module, place)
                    and not is_left_out_by_calls(program, module, place)
                ):
                    yield from judge(program, module, each)
                    if asked := asked_too_late(program, module, place):
                        late[asked[1]] = asked[0]
    for node, module in late.items():
        yield unknown(module, node, f"whether rank 0 alone writes is asked here {TOO_LATE}")
    for module in program.modules:
        for body in (module.tree.body, *(f.body for f in module.all_functions)):
            yield from read_too_early(program, module, body)


def judge(program: Program, module: Module, reached: Reached) -> Iterator[AuditVerdict]:
    """What is to be said of one place that writes, makes or removes."""
    call, path = reached.effect.node, reached.path
    if not isinstance(call, ast.Call) or path is None:
        return
    name = module.last_name(call.func)
    if name in OWN_FILES or forgives(module, call, path):
        return
    if asks_group_before(program, module, call) and runs_before_group(program, module, call):
        text = " ".join(module.text(path).split())
        yield unknown(
            module,
            call,
            f"whether rank 0 alone comes to {CHANGES[reached.effect.kind]} `{text}` by {name}() is"
            " asked before the process group is made, where every rank may be taken for the first",
        )
        return
    if ranks_at(program, module, call) < RANKS:
        return
    if reached.path_kind in (PathKind.RANK, PathKind.MEMORY) or is_own(program, module, path):
        return
    if holds_file_lock(program, module, call) or is_named_by_share(program, module, call, path):
        return
    tests = guards(program, module, call)
    if any(asks_for_file(where, test) for where, test in tests) and has_lone_barrier(program):
        return
    for where, test in tests:
        _, _, other = values_by_role(where, test)
        if other is UNKNOWN and may_name_rank(program, where, test):
            text = " ".join(where.text(test).split())
            if sounds_of_the_first(program, test):
                yield unknown(
                    module,
                    call,
                    f"whether one rank alone comes to {name}() hangs on `{text}`,"
                    " which could not be told",
                )
            return
    text = " ".join(module.text(path).split())
    what = f"{CHANGES[reached.effect.kind]} `{text}` by {name}()"
    if is_command(module, call):
        yield unknown(module, call, f"every rank runs {name}(), a command that changes files")
    elif is_surely_entered(program, module.function(call)):
        yield violated(module, call, f"every rank comes to {what}")
    else:
        yield unknown(module, call, f"every rank would {what}, if anything that is read calls this")


def asks_group_before(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether a place is guarded by a question to the process group."""
    tests = [*tests_before(module, call)]
    tests += [each.test for arg in call.args for each in everywhere(arg, ast.IfExp)]
    asked = [each for test in tests for each in everywhere(test, ast.Call)]
    return any(asks_group(program, module, each) for each in asked)


def asked_too_late(
    program: Program, module: Module, node: ast.AST
) -> tuple[Module, ast.AST] | None:
    """The place behind the end of the group that leads to a write which is for its rank 0."""
    if not isinstance(node, ast.Call) or not asks_group_before(program, module, node):
        return None
    return place_behind_group(program, module, node)


def asks_group(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether a call answers one thing before the group is made and another behind it."""
    if module.last_name(call.func) == "is_initialized":
        return True
    found = program.resolve(module, call.func)
    return found is not None and any(
        found[0].last_name(each.func) == "is_initialized" for each in everywhere(found[1], ast.Call)
    )


def forgives(module: Module, call: ast.Call, path: ast.expr) -> bool:
    """Whether it does not matter that another rank was first."""
    if is_of_listing(module, path):
        return False  # a rank that lists later removes what rank 0 has written since
    for word in FORGIVING:
        option = keyword(call, word)
        if option is not None and not (
            isinstance(option.value, ast.Constant) and option.value.value is False
        ):
            return True
    if module.last_name(call.func) == "rmtree" and len(call.args) > 1:
        return True
    return survives_file_errors(call)


def is_own(program: Program, module: Module, path: ast.expr) -> bool:
    """Whether a path may differ between ranks, or be no path: made in ways that are not read."""
    if may_name_rank(program, module, path):
        return True
    known = ("join", "Path", "joinpath", "format", "str", "abspath", "dirname", "expanduser")
    return any(
        module.last_name(call.func) not in known and program.resolve(module, call.func) is None
        for call in everywhere(path, ast.Call)
    )


def guards(program: Program, module: Module, node: ast.AST) -> list[tuple[Module, ast.expr]]:
    """The tests before a place in its function and in all that call it."""
    found: list[tuple[Module, ast.expr]] = []
    pending: list[tuple[Module, ast.AST]] = [(module, node)]
    seen = set()
    while pending:
        where, place = pending.pop()
        found += [(where, test) for test in tests_before(where, place)]
        function = where.function(place)
        if function is not None and function not in seen:
            seen.add(function)
            pending += program.callers(function)
    return found


def has_lone_barrier(program: Program) -> bool:
    """Whether some barrier is for rank 0 or for the others alone: ``rank 0 first``."""
    return any(
        len(ranks_at(program, module, call)) == 1
        for module in program.modules
        for call in module.calls_to("barrier", "monitored_barrier")
    )


def read_too_early(
    program: Program, module: Module, body: list[ast.stmt]
) -> Iterator[AuditVerdict]:
    """Reads by other ranks of what rank 0 has written above, with no collective in between."""
    for call, written in early_reads(program, module, body):
        yield violated(
            module,
            call,
            f"other ranks read here what rank 0 writes in line {written.lineno}, and nothing makes"
            " them wait for it",
        )
