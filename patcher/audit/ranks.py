"""What several obligations ask: which ranks there are, who comes to a place, what names a rank."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..analysis.language.passed_arguments import argument_for_parameter
from ..analysis.ranks.rank_reach import (
    QUERIES,
    RANKS,
    UNKNOWN,
    Role,
    roles_reaching,
    value_for_role,
)
from ..analysis.training.program import Program
from ..analysis.training.train_loops import TrainLoop, is_step
from ..source.libraries import LIBRARIES
from ..source.module import Module
from ..source.tree import FUNCTIONS, Function, everywhere, parameters, within

# Libraries that make the ranks, wrap the model and deal the data by calls of their own.
MANAGERS = {"accelerate", "lightning", "pytorch_lightning", "deepspeed", "horovod", "fairscale"}
MANAGING_CALLS = (
    *("Accelerator", "Fabric", "Trainer", "Seq2SeqTrainer", "SFTTrainer"),
    *("DistributedOptimizer", "init_distributed"),
)
# Names of things that differ between ranks, or may; where one occurs nothing is certain.
OF_A_RANK = re.compile(
    r"rank|gpu|proc|worker|shard|node|device|pid|uuid|host|time|date|now|tmp|temp|split|part"
    r"|card|local|replica",
    re.IGNORECASE,
)


def process_groups(program: Program) -> list[tuple[Module, ast.Call]]:
    """The calls that make a process group and that the program may come to."""
    return [
        (module, call)
        for module, call in program.calls_to("init_process_group")
        if program.is_live(module, call)
    ]


def is_managed(program: Program) -> bool:
    """Whether a library makes the ranks, wraps and deals: accelerate, DeepSpeed, Lightning, …"""
    return any(
        MANAGERS & module.imported_packages
        or any(is_librarys(program, module, call.func) for call in module.calls_to(*MANAGING_CALLS))
        or any(
            module.last_name(base) in MANAGING_CALLS and is_librarys(program, module, base)
            for definition in module.nodes(ast.ClassDef)
            for base in definition.bases
        )
        for module in program.modules
    )


def is_librarys(program: Program, module: Module, name: ast.expr) -> bool:
    """Whether a name is of a library, and of nothing in the program."""
    root = module.dotted(name).partition(".")[0]
    return program.resolve(module, name) is None and root in LIBRARIES


def has_several_ranks(program: Program) -> bool:
    """Whether several ranks run the program, in a group that it makes itself."""
    return bool(process_groups(program))


def ranked_loops(program: Program) -> Iterator[TrainLoop]:
    """The training loops that rank 0 and the others both come to, and that take steps."""
    if not has_several_ranks(program):
        return
    for loop in program.train_loops:
        if (
            program.is_live(loop.module, loop.steps)
            and roles_reaching(program, loop.module, loop.steps) >= RANKS
            and takes_steps(loop)
        ):
            yield loop


def takes_steps(loop: TrainLoop) -> bool:
    """Whether an optimizer steps in the loop: a loop that only attacks inputs takes none."""
    around: ast.AST = loop.epochs or loop.steps
    if loop.goes_back_elsewhere or loop.steps_in_function:
        return True
    return any(is_step(call) for call in everywhere(around, ast.Call))


def ranks_at(program: Program, module: Module, node: ast.AST) -> frozenset[Role]:
    """Which of rank 0 and the others may come to a place."""
    return roles_reaching(program, module, node) & RANKS


def is_certain(module: Module, node: ast.AST, role: Role) -> bool:
    """Whether a process of this role comes to ``node`` each time its function runs.

    No loop, handler or test of unknown value stands around it; exits above are not looked for.
    """
    child: ast.AST = node
    for up in module.ancestors(node):
        if isinstance(up, FUNCTIONS):
            break
        if isinstance(up, ast.If | ast.IfExp) and child is not up.test:
            value = value_for_role(module, up.test, role)
            body = up.body if isinstance(up.body, list) else [up.body]
            in_body = any(item is child for item in body)
            if value is UNKNOWN or bool(value) is not in_body:
                return False
        if isinstance(up, ast.For | ast.While | ast.ExceptHandler | ast.Lambda | ast.BoolOp):
            return False
        child = up
    return True


def callees(program: Program, module: Module, call: ast.Call) -> list[tuple[Module, Function]]:
    """The functions of the program that a call certainly runs one of."""
    owner = module.enclosing_class(call)
    func = call.func
    if (
        isinstance(func, ast.Attribute)
        and isinstance(func.value, ast.Name)
        and func.value.id == "self"
        and owner is not None
    ):
        return [
            (module, member)
            for member in owner.body
            if isinstance(member, FUNCTIONS) and member.name == func.attr
        ]
    found = program.resolve(module, func)
    if found is None:
        return program.callees(module, call)  # a method of an object
    where, definition = found
    if isinstance(definition, FUNCTIONS):
        return [(where, definition)]
    if isinstance(definition, ast.ClassDef):
        return [
            (where, member)
            for member in definition.body
            if isinstance(member, FUNCTIONS) and member.name == "__init__"
        ]
    return []


def callers_above(program: Program, function: Function | None) -> set[Function]:
    """The functions that call a function, also through others."""
    found: set[Function] = set()
    pending = [] if function is None else [function]
    while pending:
        for module, call in program.callers(pending.pop()):
            caller = module.function(call)
            if caller is not None and caller not in found:
                found.add(caller)
                pending.append(caller)
    return found


def functions_below(
    program: Program, module: Module, node: ast.AST | list[ast.stmt]
) -> set[tuple[Module, Function]]:
    """The functions that calls in ``node`` run, also through others."""
    found: set[tuple[Module, Function]] = set()
    pending = [(module, call) for call in within(node, ast.Call)]
    while pending:
        where, call = pending.pop()
        for callee in callees(program, where, call):
            if callee not in found:
                found.add(callee)
                pending += [(callee[0], each) for each in within(callee[1].body, ast.Call)]
    return found


def may_name_rank(
    program: Program,
    module: Module,
    node: ast.AST,
    seen: set[object] | None = None,
) -> bool:
    """Whether the value of an expression may differ between ranks, as far as names tell.

    Variables, parameters and attributes are followed to their values. A name that sounds of a rank,
    a card, a process or a time counts, so that only True may be wrong. ``seen`` grows by what has
    been asked already: names with their functions, attributes and functions.
    """
    seen = set() if seen is None else seen
    for part in everywhere(node, ast.Attribute):
        if OF_A_RANK.search(part.attr) and part.attr not in ("split", "splitext", "partition"):
            return True
        key = f".{part.attr}"
        if is_new(key, seen) and any(
            may_name_rank(program, where, value, seen)
            for where in program.modules
            for value in where.attribute_values.get(part.attr, ())
        ):
            return True
    for text in everywhere(node, ast.Constant):
        if isinstance(text.value, str) and re.search(r"RANK|%p|\{rank", text.value):
            return True
    for call in everywhere(node, ast.Call):
        if module.last_name(call.func) in QUERIES:
            return True
        for where, function in callees(program, module, call):
            if is_new(function, seen) and any(
                result.value is not None and may_name_rank(program, where, result.value, seen)
                for result in within(function.body, ast.Return)
            ):
                return True
    for name in everywhere(node, ast.Name):
        home = module.function(name)
        if isinstance(name.ctx, ast.Load) and is_new((home or module, name.id), seen):
            if OF_A_RANK.search(name.id) and name.id not in module.aliases:
                return True
            if _value_may_name_rank(program, module, name, seen):
                return True
    return False


def is_new(key: object, seen: set[object]) -> bool:
    """Whether something has not been asked yet; from here on it has."""
    if key in seen:
        return False
    seen.add(key)
    return True


def _value_may_name_rank(
    program: Program, module: Module, name: ast.Name, seen: set[object]
) -> bool:
    function = module.function(name)
    while True:
        for store in module.stores.get((function, name.id), ()):
            stmt = module.statement(store)
            value = getattr(stmt, "value", None) or getattr(stmt, "iter", None)
            if value is not None and may_name_rank(program, module, value, seen):
                return True
            if any(may_name_rank(program, module, test, seen) for test in deciders(module, stmt)):
                return True
        if function is None or (function, name.id) in module.stores:
            return False
        if name.id in parameters(function):
            return any(
                (value := argument_for_parameter(module, function, call, name.id)) is not None
                and may_name_rank(program, where, value, seen)
                for where, call in program.callers(function)
            )
        function = module.function(function)


def deciders(module: Module, stmt: ast.stmt) -> Iterator[ast.expr]:
    """What decides whether a statement runs: the tests and match subjects around it."""
    for up in module.ancestors(stmt):
        if isinstance(up, FUNCTIONS):
            return
        if isinstance(up, ast.If | ast.While):
            yield up.test
        elif isinstance(up, ast.Match):
            yield up.subject
