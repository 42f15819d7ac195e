"""Tests for a wrapped model that give another answer, or hold for another reason, on ranks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..analysis.models.saved_wrappers import is_wrapped
from ..analysis.models.wrapper_attributes import WRAPPERS
from ..analysis.ranks.certain_reach import is_negated
from ..analysis.ranks.rank_reach import RANKS, is_doubtful, roles_reaching, value_for_role
from ..analysis.training.program import Program
from ..editing.edits import Guard, Import, Rewrite
from ..findings import Finding, Severity
from ..source.branches import is_in
from ..source.module import Module
from ..source.tree import Function, below, everywhere, is_true, same_code
from .data_parallel import NO_GROUP, wrap_in

TORCH_DDP = "torch.nn.parallel.DistributedDataParallel"
Wrapped = tuple[Function | None, str, ast.stmt]
"""The scope and the name of a wrapped model, and the statement that binds it."""


def wrapper_names(module: Module) -> Iterator[Wrapped]:
    """Scope, name and statement of ``model = DistributedDataParallel(model, …)``."""
    for call in module.calls_to(*WRAPPERS):
        stmt = module.statement(call)
        if isinstance(stmt, ast.Assign) and (stmt.value is call or wrap_in(module, call)):
            for target in stmt.targets:
                if isinstance(target, ast.Name):
                    yield module.function(stmt), target.id, stmt


def isinstance_tests(program: Program, module: Module) -> Iterator[Finding]:
    """``isinstance(model, DataParallel)``, which is False for a DistributedDataParallel."""
    for call in module.calls_to("isinstance"):
        if len(call.args) != 2:
            continue
        kinds = call.args[1].elts if isinstance(call.args[1], ast.Tuple) else [call.args[1]]
        names = [module.last_name(kind) for kind in kinds]
        if "DataParallel" not in names or "DistributedDataParallel" in names:
            continue
        if asks_for_ddp_too(module, call):
            continue
        asserted = next((up for up in module.ancestors(call) if isinstance(up, ast.Assert)), None)
        if asserted is not None:
            if is_negated(module, call, asserted.test):
                continue  # it refuses DataParallel
            yield from asserted_kinds(program, module, call)
        else:
            if isinstance(call.args[1], ast.Tuple):
                edit = Rewrite(kinds[-1], f", {TORCH_DDP}", after=True)
            else:
                edit = Rewrite(kinds[0], f"({module.text(kinds[0])}, {TORCH_DDP})")
            because = f"{module.text(call)} is False for DistributedDataParallel"
            severity = Severity.DEGRADED if is_doubtful(program, module, call) else None
            yield Finding(module, call, because, (edit, Import("torch")), severity=severity)


def asserted_kinds(program: Program, module: Module, call: ast.Call) -> Iterator[Finding]:
    """``assert isinstance(model, DataParallel)``, in a function that ranks are not to call.

    As of a vendored batch norm, which is synchronised over the cards of one process.
    """
    if not roles_reaching(program, module, call) & RANKS:
        return
    because = f"{module.text(call)} fails on ranks"
    function = module.function(call)
    callers = [] if function is None else program.callers(function)
    is_alone = function is not None and not program.possible_callers(function)
    stands_alone = all(isinstance(where.parents[each], ast.Expr) for where, each in callers)
    if callers and is_alone and stands_alone:
        for where, each in callers:
            edits = (Guard(where.statement(each), NO_GROUP), Import("torch"))
            yield Finding(where, each, f"{because}, line {call.lineno}", edits)
    else:
        yield Finding(module, call, f"{because}: call this where there is no group only")


def asks_for_ddp_too(module: Module, call: ast.Call) -> bool:
    """``isinstance(model, DataParallel) or isinstance(model, DistributedDataParallel)``.

    Or an ``elif`` that asks the latter.
    """
    around = module.parents[call]
    others: list[ast.expr] = around.values if isinstance(around, ast.BoolOp) else []
    if isinstance(around, ast.If) and around.test is call and len(around.orelse) == 1:
        (behind,) = around.orelse
        others = [behind.test] if isinstance(behind, ast.If) else []
    return any(
        same_code(other.args[0], call.args[0])
        and any(
            isinstance(part, ast.expr) and module.last_name(part) == WRAPPERS[1]
            for part in below(other.args[1])
        )
        for other in others
        if isinstance(other, ast.Call)
        and module.last_name(other.func) == "isinstance"
        and len(other.args) == 2
    )


def n_gpu_tests(module: Module) -> Iterator[Finding]:
    """``model.module if args.n_gpu > 1 else model``, where a rank's n_gpu is 1."""
    counting = {up for node in module.occurrences("n_gpu") for up in module.ancestors(node)}
    choices: list[ast.If | ast.IfExp] = [*module.nodes(ast.IfExp), *module.nodes(ast.If)]
    for choice in choices:
        test = choice.test
        if not isinstance(test, ast.Compare) or test not in counting:
            continue
        answers = {value_for_role(module, test, role) for role in RANKS}
        if answers not in ({True}, {False}):
            continue
        (holds,) = answers
        never = choice.orelse if holds else choice.body  # where no rank comes to
        models = {
            use.value.id
            for part in (never if isinstance(never, list) else [never])
            for use in everywhere(part, ast.Attribute)
            if use.attr == "module" and isinstance(use.value, ast.Name)
        }
        if len(models) == 1 and (not holds or names_in_part(choice.body, models)):
            (model,) = models
            asks = f"hasattr({model}, 'module')"
            unless = "unless" if holds else "where"
            because = f"{model}.module is used only {unless} {module.text(test)}"
            rewrite = Rewrite(test, f"not {asks}" if holds else asks)
            yield Finding(module, test, because, (rewrite,))


def names_in_part(part: ast.expr | list[ast.stmt], names: set[str]) -> bool:
    """Whether one side of a choice mentions a name."""
    return any(
        name.id in names
        for each in (part if isinstance(part, list) else [part])
        for name in everywhere(each, ast.Name)
    )


def tests_of_the_wrapper(program: Program, module: Module) -> Iterator[Finding]:
    """``model.module if cards > 1 else model``, where that test wraps a lone process's model.

    A rank's model is wrapped whatever the test says, also one that asks another model, and also
    where a function gets the model.
    """
    of_ranks = {module.statement(call) for call in module.calls_to("DistributedDataParallel")}
    wrapped = {name for _, name, stmt in wrapper_names(module) if stmt in of_ranks}
    gates = set(wrapping_tests(module))
    of_settings = {  # which say the same in another function
        test for where in program.modules for _, test in wrapping_tests(where) if "." in test
    }
    for choice, name in choices_of_module(module):
        first, second = whole_text(module, choice.body), whole_text(module, choice.orelse)
        inside, bare = f"{name.id}.module", name.id
        is_swapped = second != first and second.replace(inside, bare) == first
        if not is_swapped and (first == second or first.replace(inside, bare) != second):
            continue
        asked = choice.test
        if is_swapped:
            if not (isinstance(asked, ast.UnaryOp) and isinstance(asked.op, ast.Not)):
                continue
            asked = asked.operand
        test = module.text(asked)
        if bare in wrapped:
            is_known = (bare, test) in gates or asks_of_bare(asked, wrapped)
        else:
            is_known = test in of_settings and is_wrapped(program, module, name)
        if is_known:
            because = f"{inside} is used only where {module.text(choice.test)}"
            code = f"hasattr({bare}, 'module')"
            edit = Rewrite(choice.test, f"not {code}" if is_swapped else code)
            yield Finding(module, choice.test, because, (edit,))


def choices_of_module(module: Module) -> Iterator[tuple[ast.If | ast.IfExp, ast.Name]]:
    """The tests around each ``model.module``, the innermost, each with the model, once."""
    seen: set[tuple[ast.AST, str]] = set()
    for use in module.occurrences("module"):
        if not (isinstance(use, ast.Attribute) and isinstance(use.value, ast.Name)):
            continue
        choice = next(
            (up for up in module.ancestors(use) if isinstance(up, ast.If | ast.IfExp)), None
        )
        if choice is not None and (choice, use.value.id) not in seen:
            seen.add((choice, use.value.id))
            yield choice, use.value


def wrapping_tests(module: Module) -> Iterator[tuple[str, str]]:
    """The tests under which a lone process wraps its model, each behind the model's name."""
    for call in module.calls_to("DataParallel"):
        stmt = module.statement(call)
        for up in module.ancestors(stmt):
            if not isinstance(up, ast.If) or not isinstance(stmt, ast.Assign):
                continue
            if not any(is_in(stmt, each) for each in up.body):
                continue
            test = module.text(up.test).partition(f" and {NO_GROUP}")[0]
            for gate in (test, *flags_set_in(module, up.body)):
                for target in stmt.targets:
                    if isinstance(target, ast.Name):
                        yield target.id, gate


def flags_set_in(module: Module, body: list[ast.stmt]) -> Iterator[str]:
    """The names that a branch makes True, beside a model that it wraps: ``is_parallel = True``."""
    for stmt in body:
        if isinstance(stmt, ast.Assign) and is_true(stmt.value):
            yield from map(module.text, stmt.targets)


def asks_of_bare(test: ast.expr, wrapped: set[str]) -> bool:
    """``hasattr(encoder, "module")``, of another name than those of wrapped models."""
    match test:
        case ast.Call(func=ast.Name("hasattr"), args=[ast.Name(name), ast.Constant("module")]):
            return name not in wrapped
    return False


def whole_text(module: Module, part: ast.expr | list[ast.stmt]) -> str:
    return "\n".join(map(module.text, part if isinstance(part, list) else [part]))
