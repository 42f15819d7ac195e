"""The local rank is used to tell the main process.

What         A test like local_rank in [-1, 0] decides who writes or reports, where a process group
             exists. Barriers by local rank ("the first process of each node first", around files
             on a node's own disk), downloads, and tests that only choose what is logged are left
             alone.
At run time  On several nodes there is one such process per node: as many writers of one file.
Example      if args.local_rank in [-1, 0] and global_step % args.save_steps == 0: …
Fix          is_main_process() in its place: the process group's rank 0, or the only process.
Fix safety   Safe: on one node, and in a lone process, both tests give the same answer. A file that
             each node is meant to have on its own disk is written on the first node only.
Source       https://docs.pytorch.org/docs/stable/elastic/run.html (LOCAL_RANK and RANK)
"""

import ast
from collections.abc import Iterator

from ..analysis.call_graph import called
from ..analysis.program import Program
from ..analysis.rank_reach import Role, gates, value, values
from ..editing.edits import Define, Rewrite
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import Function, within

CODE, SEVERITY, SAFETY = "DF104", Severity.DEGRADED, Safety.SAFE

HARMLESS_MODULES = ("logger.", "logging.", "warnings.", "tqdm.", "math.", "numpy.")
HARMLESS_CALLS = {
    *("print", "format", "join", "replace", "split", "strip", "map", "str", "repr", "sorted"),
    *("round", "len", "enumerate", "range", "zip", "list", "dict", "int", "float", "sum", "max"),
    *("min", "keys", "values", "items", "get", "append", "item", "time", "get_lr", "get_last_lr"),
    *("makedirs", "mkdir", "exists", "isdir", "isfile"),  # each node may make the folder
}  # calls after which no file has had two writers
Place = tuple[Module, Function | None]


def findings(program: Program) -> Iterator[Finding]:
    if not any(module.calls_to("init_process_group") for module in program.modules):
        return
    if any(local_rank_is_global(module) for module in program.modules):
        return
    tests = [(m, test, gate) for m in program.modules for test, gate in main_tests(m)]
    if not tests:
        return
    evaluating = {
        gate
        for evaluation in program.evaluations
        for module, call in program.entries(evaluation)
        for gate in gates(module, call)
    }  # those are DF501's
    lines, early = code_before_group(program)
    for module, test, gate in tests:
        place = module, module.function(test)
        started = test.lineno > lines[place] if place in lines else place[1] not in early
        if started and gate not in evaluating and not (gate and is_per_node(module, gate)):
            yield Finding(
                module,
                test,
                f"{module.text(test)} holds on every node",
                (Rewrite(test, global_rank_test(module, test)), Define("is_main_process")),
            )


def main_tests(module: Module) -> Iterator[tuple[ast.Compare, ast.If | None]]:
    """Comparisons that single out local rank 0, in a test or under a name, and their ``if``."""
    for node in module.spelled("local_rank"):
        compare = module.parents[node]
        if not isinstance(compare, ast.Compare) or compare.left is not node:
            continue
        if not is_local_rank(module, node) or len(compare.ops) > 1:
            continue
        _, main, other = values(module, compare)
        if not isinstance(main, bool) or not isinstance(other, bool) or main is other:
            continue
        up: ast.AST = compare
        while isinstance(module.parents[up], ast.BoolOp | ast.UnaryOp):
            up = module.parents[up]
        holder = module.parents[up]
        if isinstance(holder, ast.If) and holder.test is up:
            yield compare, holder
        elif isinstance(holder, ast.Assign):
            yield compare, None


def is_local_rank(module: Module, node: ast.expr) -> bool:
    """``args.local_rank``, or a variable of that name; a parameter may be given anything."""
    if isinstance(node, ast.Name) and node.id == "local_rank":
        return any((scope, node.id) in module.stores for scope in (module.function(node), None))
    return isinstance(node, ast.Attribute) and node.attr == "local_rank"


def global_rank_test(module: Module, test: ast.Compare) -> str:
    """The same question put to the process group; what a lone process answers stays."""
    main, alone = value(module, test, Role.MAIN), value(module, test, Role.SINGLE)
    text = "is_main_process()" if main else "not is_main_process()"
    if bool(alone) is main:
        return text
    link, sign = ("or", "==") if alone else ("and", "!=")
    text = f"{module.text(test.left)} {sign} -1 {link} {text}"
    return text if isinstance(module.parents[test], ast.If | ast.Assign) else f"({text})"


def local_rank_is_global(module: Module) -> bool:
    """Whether what the script calls its local rank is the group's."""
    return any(
        isinstance(stmt := module.parents[target], ast.Assign)
        and isinstance(stmt.value, ast.Call)
        and module.dotted(stmt.value.func).endswith("get_rank")
        for target in module.spelled("local_rank")
    )


def is_per_node(module: Module, gate: ast.If) -> bool:
    """A block that each node needs, or that writes no file."""
    calls = [call for stmt in gate.body for call in within(stmt, ast.Call)]
    names = [module.dotted(call.func) for call in calls]
    if any(name.endswith("barrier") or "download" in name for name in names):
        return True
    leaves = any(within(gate.body, kind) for kind in (ast.Return, ast.Break, ast.Continue))
    talk = (n.startswith(HARMLESS_MODULES) or n.rpartition(".")[2] in HARMLESS_CALLS for n in names)
    return not leaves and all(talk)


def code_before_group(program: Program) -> tuple[dict[Place, int], set[Function]]:
    """Up to which line functions have no process group yet, and the functions called above."""
    lines: dict[Place, int] = {}
    early: set[Function] = set()
    pending = [(m, call) for m in program.modules for call in m.calls_to("init_process_group")]
    while pending:
        module, call = pending.pop()
        function = module.function(call)
        if (module, function) in lines:
            continue
        lines[module, function] = call.lineno
        above = [c for c in within(module.scope_statements(call), ast.Call)
                 if c.lineno < call.lineno]  # fmt: skip
        early |= called(program, {module.last_name(c.func) for c in above})
        if function is not None:
            pending += program.callers(function)
    return lines, early
