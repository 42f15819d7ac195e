"""A name is bound under a rank test and read outside it.

What         On some rank no path binds the name before it is read; in a lone process one may. Or
             the other ranks bind it to None, and come to a call of its method. So for an attribute
             of the parsed arguments or of self: args.writer, self.writer. A warning where rank 0
             alone takes from a checkpoint the epoch to go on at, or the optimizer's state.
At run time  UnboundLocalError or AttributeError on that rank; its peers see a closed connection or
             wait. After a resume of rank 0 alone, the ranks' weights part, and some end too early.
Example      if args.local_rank == -1: results = evaluate(…)
             if results["f1"] > best: …
Fix          Where the name holds an evaluation's result, DF501 lets every rank evaluate. Where it
             is a writer of rank 0, the read gets the same test. Else by hand: bind the name for all
             ranks above the test, as None, or move the read under it.
Fix safety   Safe: for a lone process the test holds.
Source       definite-assignment analysis, once for rank 0 and once for the other ranks
"""

import ast
from collections.abc import Collection, Iterator

from ..analysis.ranks.certain_reach import surely_on_every_rank
from ..analysis.ranks.rank_0_attributes import reads_on_other_ranks
from ..analysis.ranks.rank_reach import (
    RANKS,
    Role,
    rank_gates,
    roles_reaching,
    roles_reaching_in_function,
)
from ..analysis.ranks.unbound_reads import UnboundRead, unbound_reads
from ..analysis.training.program import Program
from ..editing.edits import Edit
from ..findings import Finding, Safety, Severity
from ..fixes.process_group import only_on_main
from ..source.module import Module
from ..source.tree import (
    Function,
    below,
    is_inside,
    is_none,
    mentions,
    names_within,
    precedes,
)

CODE, SEVERITY, SAFETY = "DF502", Severity.ERROR, Safety.SAFE
TARGETS = (ast.Name, ast.Attribute)


def findings(program: Program) -> Iterator[Finding]:
    for module in program.modules:
        guarded: set[ast.stmt] = set()
        for unbound in unbound_reads(module):
            if unbound.role not in roles_reaching(program, module, unbound.name):
                continue  # the callers ask for the rank as well
            stmt = module.statement(unbound.name)
            binding = gated_bindings(module, unbound.function, unbound.name.id)
            where = f"bound in line {binding[0].lineno} only" if binding else "never bound"
            edits: tuple[Edit, ...] = ()
            if stmt not in guarded and is_writers_call(module, stmt, unbound, binding):
                guarded.add(stmt)
                edits = only_on_main(stmt)
            reads = "read" if unbound.role is Role.OTHER else "reads"
            yield Finding(
                module,
                unbound.name,
                f"{unbound.name.id} is {where}; {unbound.role.value} {reads} it unbound",
                edits,
            )
        yield from calls_of_none(program, module)
    yield from resumed_alone(program)
    for module, read, bound in reads_on_other_ranks(program):
        stmt = module.statement(read)
        is_call = is_call_of(stmt, read)
        is_certain = surely_on_every_rank(program, module, read, with_options=True)
        if not is_call and not is_certain:
            continue
        yield Finding(
            module,
            read,
            f"{module.text(read)} is bound in line {bound.lineno} only; the other ranks lack it",
            only_on_main(stmt) if is_call else (),
            severity=None if is_certain else Severity.DEGRADED,
        )


def resumed_alone(program: Program) -> Iterator[Finding]:
    """What rank 0 alone takes from a checkpoint: an optimizer's state, the epoch to go on at."""
    for module, call in () if shares_states(program) else program.calls_to("load_state_dict"):
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        is_optimizer = owner is not None and "optim" in module.last_name(owner).lower()
        if is_optimizer and is_for_rank_0(program, module, call):
            because = "only rank 0 loads the optimizer's state, and steps otherwise than its peers"
            yield Finding(module, call, because, severity=Severity.DEGRADED)
    training = {loop.module.function(loop.steps) for loop in program.train_loops} - {None}
    for module in program.modules:
        for epochs in module.nodes(ast.For):
            if not (
                isinstance(epochs.iter, ast.Call) and module.last_name(epochs.iter.func) == "range"
            ):
                continue
            for number in below(epochs.iter):
                if not isinstance(number, TARGETS):
                    continue
                stores = stores_of(module, number)
                above = [each for each in stores if precedes(each, epochs)]
                if (
                    above
                    and is_for_rank_0(program, module, above[-1])
                    and roles_reaching(program, module, epochs) >= RANKS
                    and trains(program, module, epochs, training)
                ):
                    because = (
                        f"{module.text(number)} is bound anew in line {above[-1].lineno} on rank 0"
                        " alone, which trains fewer epochs than its peers, who wait for it"
                    )
                    yield Finding(module, epochs, because, severity=Severity.DEGRADED)
                    break


def shares_states(program: Program) -> bool:
    """Whether Horovod gives all ranks the state of rank 0's optimizer, of which no part is told."""
    return any(
        module.dotted(call.func).startswith("horovod.")
        for module, call in program.calls_to("broadcast_optimizer_state", "TorchState")
    )


def is_for_rank_0(program: Program, module: Module, node: ast.AST) -> bool:
    """Whether rank 0 alone, of several, comes to a place that a test of ranks guards."""
    return program.is_live(module, node) and roles_reaching(program, module, node) & RANKS == {
        Role.MAIN
    }


def stores_of(module: Module, target: ast.expr) -> list[ast.expr]:
    """Where the function of a name or an attribute binds it, in order."""
    name = module.last_name(target)
    return [
        each
        for each in module.occurrences(name)
        if isinstance(each.ctx, ast.Store)
        and module.text(each) == module.text(target)
        and module.function(each) is module.function(target)
    ]


def trains(
    program: Program, module: Module, epochs: ast.For, training: Collection[Function | None]
) -> bool:
    """Whether a loop holds a training loop, or calls a function that has one."""
    return any(is_inside(loop.steps, epochs) for loop in program.train_loops) or any(
        function in training for _, function in program.functions_below(module, *epochs.body)
    )


def calls_of_none(program: Program, module: Module) -> Iterator[Finding]:
    """Methods of what is None on all ranks but 0, where those come to: ``else: writer = None``."""
    for none in module.nodes(ast.Assign):
        function, target = module.function(none), none.targets[0]
        if not is_none(none.value) or not isinstance(target, ast.Name):
            continue
        if function is not None and not program.is_live(module, none):
            continue
        roles = roles_reaching_in_function(module, none)
        others = [
            stmt
            for store in module.stores.get((function, target.id), ())
            for stmt in [module.statement(store)]
            if stmt is not none
        ]
        if Role.OTHER not in roles or Role.MAIN in roles or not others:
            continue
        if any(Role.OTHER in roles_reaching_in_function(module, stmt) for stmt in others):
            continue
        for name in names_within(module.scope_statements(none), {target.id}):
            stmt, call = module.statement(name), module.parents[module.parents[name]]
            if (
                isinstance(stmt, ast.Expr)
                and stmt.value is call
                and isinstance(call, ast.Call)
                and isinstance(call.func, ast.Attribute)
                and call.func.value is name
                and precedes(none, stmt)
                and Role.OTHER in roles_reaching(program, module, stmt)
                and not is_asked_for(module, stmt, name.id)
            ):
                because = f"{name.id} is None on the other ranks, by line {none.lineno}"
                in_handler = any(isinstance(up, ast.ExceptHandler) for up in module.ancestors(stmt))
                is_sure = not in_handler and surely_on_every_rank(program, module, stmt)
                severity = None if is_sure else Severity.DEGRADED
                yield Finding(module, name, because, only_on_main(stmt), severity=severity)


def is_asked_for(module: Module, stmt: ast.stmt, name: str) -> bool:
    """Whether a test around a statement asks for a name: ``if writer:``."""
    tests = [up.test for up in module.ancestors(stmt) if isinstance(up, ast.If | ast.While)]
    return any(mentions(test, name) for test in tests)


def gated_bindings(module: Module, function: Function, name: str) -> list[ast.stmt]:
    """Statements of the function that bind ``name`` under a rank test."""
    stored = (n for n in names_within(function.body, {name}) if not isinstance(n.ctx, ast.Load))
    stmts = map(module.statement, stored)
    binding = (ast.Assign, ast.With)
    return [stmt for stmt in stmts if isinstance(stmt, binding) and rank_gates(module, stmt)]


def is_writers_call(
    module: Module, stmt: ast.stmt, unbound: UnboundRead, binding: list[ast.stmt]
) -> bool:
    """``tb_writer.add_scalar(…)``: a call for its effect on an object that only rank 0 has."""
    return bool(binding) and is_call_of(stmt, unbound.name)


def is_call_of(stmt: ast.stmt, holder: ast.expr) -> bool:
    """Whether a statement only calls a method of an object."""
    return (
        isinstance(stmt, ast.Expr)
        and isinstance(stmt.value, ast.Call)
        and isinstance(stmt.value.func, ast.Attribute)
        and stmt.value.func.value is holder
    )
