"""The local rank is used to tell the main process.

What         A test like local_rank in [-1, 0] decides who writes or reports, where a process group
             exists, or the group is made with rank=local_rank. rank % gpus_per_node == 0 asks for
             the first of each node as well, which may be meant: that is a note. Barriers by local
             rank ("the first process of each node first", around files on a node's own disk),
             downloads, and tests that only choose what is logged are left alone.
At run time  On several nodes there is one such process per node: as many writers of one file.
Example      if args.local_rank in [-1, 0] and global_step % args.save_steps == 0: …
Fix          is_main_process() in its place: the process group's rank 0, or the only process. The
             group gets the RANK of the launcher. A note is left to you.
Fix safety   Safe: on one node, and in a lone process, both tests give the same answer. A file that
             each node is meant to have on its own disk is written on the first node only.
Source       https://docs.pytorch.org/docs/stable/elastic/run.html (LOCAL_RANK and RANK)
"""

import ast
import re
from collections.abc import Iterator

from ..analysis.language.conditions import asked_value, plain_test, reads
from ..analysis.ranks.before_group import code_before_group
from ..analysis.ranks.rank_reach import (
    Role,
    is_rank_test,
    rank_gates,
    value_for_role,
    values_by_role,
)
from ..analysis.ranks.rank_values import counts_a_machine
from ..analysis.ranks.spawning import spawned_ranks
from ..analysis.training.program import Program
from ..editing.edits import Define, Import, Rewrite
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import (
    argument,
    mentions,
    precedes,
    within,
)

CODE, SEVERITY, SAFETY = "DF104", Severity.DEGRADED, Safety.SAFE

GROUP = "init_process_group"
HARMLESS_MODULES = ("logger.", "logging.", "warnings.", "tqdm.", "math.", "numpy.")
TO_LOG = re.compile(r"(?i)(^|\.)_*log(ger|ging)?\.(debug|info|warn(ing)?|error|critical)$")
HARMLESS_CALLS = {
    *("print", "format", "join", "replace", "split", "strip", "map", "str", "repr", "sorted"),
    *("round", "len", "enumerate", "range", "zip", "list", "dict", "int", "float", "sum", "max"),
    *("min", "keys", "values", "items", "get", "append", "item", "time", "get_lr", "get_last_lr"),
    *("makedirs", "mkdir", "exists", "isdir", "isfile"),  # each node may make the folder
}  # calls that write no file


def findings(program: Program) -> Iterator[Finding]:
    if not program.calls_to(GROUP):
        return
    if any(local_rank_is_global(module) for module in program.modules):
        return
    yield from groups_by_local_rank(program)
    yield from firsts_of_machines(program)
    tests = [(m, test, gates) for m in program.modules for test, gates in main_tests(m)]
    if not tests:
        return
    evaluating = {
        gate
        for evaluation in program.evaluations
        for module, call in program.entries(evaluation)
        for gate in rank_gates(module, call)
    }  # DF501 reports those
    group_calls, early_functions = code_before_group(program)
    for module, test, gates in tests:
        function = module.function(test)
        if (module, function) in group_calls:
            calls = group_calls[module, function]
            has_group = any(precedes(call, test) for call in calls)
        else:
            has_group = function not in early_functions
        is_harmless = bool(gates) and all(is_per_node(module, gate) for gate in gates)
        if has_group and not is_harmless and not evaluating & {*gates}:
            yield Finding(
                module,
                test,
                f"{module.text(test)} holds on every node",
                (Rewrite(test, global_rank_test(module, test)), Define("is_main_process")),
            )


def groups_by_local_rank(program: Program) -> Iterator[Finding]:
    """``init_process_group(…, rank=local_rank)``, where a launcher has started the ranks."""
    for module, call in () if any(spawned_ranks(program)) else program.calls_to(GROUP):
        rank = argument(call, 4, "rank")
        if rank is not None and is_local_rank(module, rank):
            text = module.text(rank)
            edit = Rewrite(rank, f"int(os.environ.get('RANK', {text}))")
            because = f"the group takes {text} for the rank: each node has a rank 0"
            yield Finding(module, call, because, (edit, Import("os")))


def firsts_of_machines(program: Program) -> Iterator[Finding]:
    """``if rank % gpus_per_node == 0:`` around what writes, where a rank counts all machines'."""
    for module in program.modules:
        for node in module.nodes(ast.BinOp):
            compare = module.parents[node]
            if not isinstance(node.op, ast.Mod) or not isinstance(compare, ast.Compare):
                continue
            if not counts_a_machine(module, node.right) or not program.is_live(module, node):
                continue
            up: ast.AST = compare
            while isinstance(module.parents[up], ast.BoolOp | ast.UnaryOp):
                up = module.parents[up]
            gate = module.parents[up]
            is_asked = isinstance(gate, ast.Return) or (
                isinstance(gate, ast.If) and gate.test is up and not is_per_node(module, gate)
            )
            if is_asked and values_by_role(module, compare)[1:] == (True, False):
                because = f"{module.text(compare)} holds for the first rank of each node"
                yield Finding(module, compare, because, severity=Severity.NOTE)


def main_tests(module: Module) -> Iterator[tuple[ast.Compare, list[ast.If]]]:
    """Comparisons that single out local rank 0, and each ``if`` they are a test of.

    There is none where the comparison is assigned to a name that is not only asked for.
    """
    for node in module.occurrences("local_rank"):
        compare = module.parents[node]
        if not isinstance(compare, ast.Compare) or asked_value(compare) is not node:
            continue
        if not is_local_rank(module, node) or len(compare.ops) > 1:
            continue
        _, main, other = values_by_role(module, compare)
        if not isinstance(main, bool) or not isinstance(other, bool) or main is other:
            continue
        up: ast.AST = compare
        while isinstance(module.parents[up], ast.BoolOp | ast.UnaryOp):
            if is_beside_global_test(module, up, compare):
                break
            up = module.parents[up]
        holder = module.parents[up]
        if isinstance(holder, ast.BoolOp):
            continue
        if isinstance(holder, ast.If) and holder.test is up:
            yield compare, [holder]
        elif isinstance(holder, ast.Assign):
            yield compare, tests_by_name(module, holder)


def tests_by_name(module: Module, assign: ast.Assign) -> list[ast.If]:
    """Each ``if`` that asks for a test's name; none where another place reads the name, too."""
    target = assign.targets[0]
    if not isinstance(target, ast.Name) or len(assign.targets) > 1:
        return []
    tests = [
        stmt for stmt in module.nodes(ast.If) if plain_test(module, stmt.test)[0] is assign.value
    ]
    return tests if len(tests) == reads(module, target) else []


def is_beside_global_test(module: Module, part: ast.AST, compare: ast.Compare) -> bool:
    """``get_rank() == 0 and local_rank == 0``: the other part of the test tells rank 0 alone."""
    connective = module.parents[part]
    return isinstance(connective, ast.BoolOp) and any(
        is_rank_test(module, other) and not mentions(other, "local_rank")
        for other in connective.values
        if other is not part and isinstance(connective.op, ast.And)
    )


def is_local_rank(module: Module, node: ast.expr) -> bool:
    """``args.local_rank``, or a variable of that name; a parameter may hold anything."""
    if isinstance(node, ast.Name) and node.id == "local_rank":
        return any((scope, node.id) in module.stores for scope in (module.function(node), None))
    return isinstance(node, ast.Attribute) and node.attr == "local_rank"


def global_rank_test(module: Module, test: ast.Compare) -> str:
    """The text of the test by global rank, with the same value as before in a lone process."""
    on_main, alone = (
        value_for_role(module, test, Role.MAIN),
        value_for_role(module, test, Role.SINGLE),
    )
    text = "is_main_process()" if on_main else "not is_main_process()"
    if bool(alone) is on_main:
        return text
    connective, sign = ("or", "==") if alone else ("and", "!=")
    text = f"{module.text(asked_value(test))} {sign} -1 {connective} {text}"
    return text if isinstance(module.parents[test], ast.If | ast.Assign) else f"({text})"


def local_rank_is_global(module: Module) -> bool:
    """Whether the script assigns ``get_rank()`` to what it calls its local rank."""
    return any(
        isinstance(stmt := module.parents[target], ast.Assign)
        and isinstance(stmt.value, ast.Call)
        and module.dotted(stmt.value.func).endswith("get_rank")
        for target in module.occurrences("local_rank")
    )


def is_per_node(module: Module, gate: ast.If) -> bool:
    """Whether each node needs the block, or the block writes no file."""
    blocks = (gate.body, gate.orelse)
    calls = [call for block in blocks for call in within(block, ast.Call)]
    names = [module.dotted(call.func) for call in calls]
    if any(name.endswith("barrier") or "download" in name for name in names):
        return True
    exits = (ast.Return, ast.Break, ast.Continue)
    leaves = any(within(block, kind) for block in blocks for kind in exits)
    return not leaves and all(
        name.startswith(HARMLESS_MODULES)
        or name.rpartition(".")[2] in HARMLESS_CALLS
        or TO_LOG.search(name)
        for name in names
    )
