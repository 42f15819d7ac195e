"""Which ranks evaluate, on what, and whether the program puts their parts together itself."""

from __future__ import annotations

import ast
from itertools import takewhile

from ...editing.helpers import helper_names
from ...source.branches import exclusive
from ...source.module import Module
from ...source.tree import (
    Function,
    argument_values,
    bound_names,
    everywhere,
    is_inside,
    parameters,
    precedes,
    within,
)
from ..language.call_graph import reachable_functions
from ..language.name_flow import flows, names_in, spread, taking
from ..language.passed_arguments import argument_for_parameter
from ..training.evaluations import Evaluation
from ..training.frameworks import RANK_SAMPLERS
from ..training.program import Program
from .rank_reach import RANKS, rank_gates, roles_reaching, roles_reaching_in_function

# Collectives that bring what ranks have together; a barrier and a broadcast do not.
COMBINING = {
    *("all_reduce", "all_gather", "all_gather_object", "all_gather_into_tensor", "reduce"),
    *("gather", "gather_object", "gather_for_metrics", "reduce_scatter"),
    *("allreduce", "allgather", "allgather_object"),  # of Horovod
}
EVEN_SAMPLERS = (*RANK_SAMPLERS[:1], "SequentialSampler")  # as many examples on each rank
LIBRARIES = ("torch.distributed.", "dist.", "horovod.")
GATHERING = ("torchmetrics.", "monai.metrics.", "ignite.metrics.")  # objects that do so themselves


def combines_parts(program: Program, evaluation: Evaluation) -> bool:
    """Whether the evaluating function brings together what the ranks have, here or in a callee.

    Of what its loop adds up, all has to be passed to something that does, or what is made of it.
    """
    module, sums = evaluation.module, evaluation.accumulators
    body = module.scope_statements(evaluation.loop)
    if not sums:
        made = [module.dotted(call.func) for call in within(body, ast.Call)]
        whole_here = combines(program, module, body) or any(map(is_gathering, made))
        return whole_here or combined_by_callers(program, evaluation)
    calls = [call for call in within(body, ast.Call) if precedes(evaluation.loop, call)]
    behind = [stmt for stmt in body if precedes(evaluation.loop, stmt)]
    whole = combined_in_loop(program, evaluation)
    return combined_by_callers(program, evaluation) or all(
        name in whole
        or any(
            names & names_in(call) and combines(program, module, [module.statement(call)])
            for call in calls
        )
        for name in sums
        for names in [spread(behind, {name}).names]
    )


def combined_by_callers(program: Program, evaluation: Evaluation) -> bool:
    """Whether all callers of an evaluation bring together what it returns, or make of it."""
    function = evaluation.function
    callers = [] if function is None else program.callers(function)
    live = [(where, call) for where, call in callers if program.is_live(where, call)]
    return bool(live) and all(combines_result(program, where, call) for where, call in live)


def combines_result(program: Program, module: Module, call: ast.Call) -> bool:
    """``scores = predict(model)``, ``mean = scores.mean()`` and then ``dist.all_reduce(mean)``."""
    stmt = module.statement(call)
    if not isinstance(stmt, ast.Assign):
        return False
    around = takewhile(lambda up: not isinstance(up, Function), (stmt, *module.ancestors(stmt)))
    behind = [
        each
        for up in around
        if isinstance(up, ast.stmt)
        for each in module.body(up)
        if precedes(up, each)
    ]
    names = spread(behind, taking(stmt.targets)).names
    return any(
        names & names_in(each) and combines(program, module, [module.statement(each)])
        for each in within(behind, ast.Call)
    )


def is_gathering(name: str) -> bool:
    """Whether a dotted name is of a library's metric, which gathers when it is computed."""
    return name.startswith(GATHERING) and name.rpartition(".")[2][:1].isupper()


def combined_in_loop(program: Program, evaluation: Evaluation) -> frozenset[str]:
    """The sums that an evaluation makes of what its ranks have brought together in each batch.

    ``logits, labels = gather(logits, labels)`` and what is behind it in the loop.
    """
    module, loop, sums = evaluation.module, evaluation.loop, set(evaluation.accumulators or ())
    first: ast.stmt | None = None
    brought: set[str] = set()
    for call in within(loop.body, ast.Call):
        stmt = module.statement(call)
        if not isinstance(stmt, ast.Assign | ast.Expr) or not combines(program, module, [stmt]):
            continue
        first = first or stmt
        into = stmt.targets if isinstance(stmt, ast.Assign) else argument_values(call)
        brought = brought.union(*map(names_in, into))
    if first is None:
        return frozenset()
    whole = spread(loop.body, brought).names
    of_parts = {
        name
        for targets, value in flows(loop.body)
        for name in taking(targets) & sums
        if names_in(value).isdisjoint(whole) or not precedes(first, value)
    }
    return (whole & sums) - of_parts


def combines(program: Program, module: Module, body: list[ast.stmt]) -> bool:
    """Whether statements bring together what the ranks have, themselves or in a callee."""
    names = {module.last_name(call.func) for call in within(body, ast.Call)}
    names |= {
        module.last_name(part)  # map(mean_of_ranks if distributed else float, meters)
        for call in within(body, ast.Call)
        for value in argument_values(call)
        for part in ((value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,))
        if isinstance(part, ast.Name | ast.Attribute)
        and (found := program.resolve(module, part)) is not None
        and isinstance(found[1], Function)
    }
    bodies = [(module, body)]
    bodies += [
        (program.module_of(each), each.body)
        for each in reachable_functions(program, names)
        if each.name not in helper_names()
    ]
    return any(
        where.last_name(call.func) in COMBINING
        and (where.dotted(call.func).startswith(LIBRARIES) or is_of_mpi(where, call.func))
        for where, stmts in bodies
        for call in within(stmts, ast.Call)
    )


def is_of_mpi(module: Module, func: ast.expr) -> bool:
    """``comm.allgather``, where the module says ``comm = MPI.COMM_WORLD``."""
    owner = func.value if isinstance(func, ast.Attribute) else func
    name = module.last_name(owner)
    bound = module.single_assignment(None, name), *module.attribute_values.get(name, ())
    values = (owner, *module.alternatives(owner, owner), *bound)
    return any(value and module.dotted(value).startswith("mpi4py.") for value in values)


def ranks_keep_pace(program: Program, evaluation: Evaluation) -> bool:
    """Whether all ranks evaluate, and each goes through equally many batches.

    They do without a sampler, with one that deals nothing, and with torch's, which pads.
    """
    entries = program.entries(evaluation)
    loader = evaluation.loader
    return (
        bool(entries)
        and all(roles_reaching(program, *entry) >= RANKS for entry in entries)
        and all(is_even(program, loader.module, sampler) for sampler in loader.samplers)
    )


def ranks_evaluate_elsewhere(program: Program, evaluation: Evaluation) -> bool:
    """Whether an evaluation is a lone process's, and ranks come to another in the other branch.

    ``if args.distributed: if rank == 0: evaluate here, else: evaluate here, too``.
    """
    entries = program.entries(evaluation)
    others = [
        each
        for other in program.evaluations
        if other is not evaluation
        for each in program.entries(other)
    ]
    return bool(entries) and all(
        any(
            where is module and exclusive(entry, other)
            for where, other in others
            if any(is_inside(other, gate) for gate in rank_gates(module, entry))
        )
        and not roles_reaching_in_function(module, entry) & RANKS
        for module, entry in entries
    )


def is_even(program: Program, module: Module, sampler: ast.expr) -> bool:
    """Whether a sampler has equally many examples on each rank, also one that a function makes."""
    made = program.callees(module, sampler) if isinstance(sampler, ast.Call) else []
    results = [
        (where, result.value)
        for where, function in made
        for result in within(function.body, ast.Return)
    ]
    if not made:
        return is_none_or_even(module, sampler)
    return bool(results) and all(
        is_none_or_even(where, each)
        for where, value in results
        if value is not None
        for each in where.alternatives(value, value) or [value]
    )


def is_none_or_even(module: Module, sampler: ast.expr) -> bool:
    """None, or a sampler of torch's that has equally many examples on each rank."""
    if isinstance(sampler, ast.Constant):
        return sampler.value is None
    if isinstance(sampler, ast.IfExp):
        return all(is_none_or_even(module, each) for each in (sampler.body, sampler.orelse))
    if isinstance(sampler, ast.Call) and module.last_name(sampler.func) in EVEN_SAMPLERS:
        return True  # whatever makes the data that it is told of
    calls = list(everywhere(sampler, ast.Call))
    return bool(calls) and all(module.last_name(call.func) in EVEN_SAMPLERS for call in calls)


def may_be_bare(program: Program, module: Module, entry: ast.AST, evaluation: Evaluation) -> bool:
    """Whether the model that an entry evaluates may be one that no wrapper holds.

    ``average.model``, ``net.module``, or a name that is bound to such a thing on some way.
    """
    function = evaluation.function
    if function is None or not isinstance(entry, ast.Call):
        return False
    passed = argument_for_parameter(evaluation.module, function, entry, evaluation.model)
    if passed is None:
        return False
    wrapped = wrapped_names(program)
    values = [passed, *module.alternatives(passed, passed)]
    values += [part for value in values if isinstance(value, ast.IfExp) for part in parts(value)]
    return any(
        isinstance(value, ast.Attribute) and module.text(value) not in wrapped for value in values
    )


def wrapped_names(program: Program) -> set[str]:
    """What wrapped models are bound to: ``model``, ``self.net``."""
    return {
        where.text(target)
        for where, call in program.calls_to("DistributedDataParallel", "DataParallel")
        for stmt in [where.statement(call)]
        if isinstance(stmt, ast.Assign)
        for target in stmt.targets
    }


def calls_another_wrapper(program: Program, evaluation: Evaluation) -> bool:
    """Whether an evaluation goes forward through a second model that may be in a wrapper."""
    module, function = evaluation.module, evaluation.function
    wrapped = wrapped_names(program)
    own = bound_names(module.scope_statements(evaluation.loop))
    for call in within(evaluation.loop.body, ast.Call):
        name = module.text(call.func)
        if name == evaluation.model or not isinstance(call.func, ast.Name | ast.Attribute):
            continue
        if function is None or name not in parameters(function):
            if name in wrapped:
                return True
        elif name not in own and any(
            where.text(passed) in wrapped
            for where, entry in program.entries(evaluation)
            if isinstance(entry, ast.Call)
            and (passed := argument_for_parameter(module, function, entry, name)) is not None
        ):
            return True
    return False


def gets_the_module(program: Program, evaluation: Evaluation) -> bool:
    """Whether all calls pass an evaluation what is in a wrapper: ``test(model.module)``.

    Also by a name that is ``model.module`` where there is a wrapper, and ``model`` where not.
    """
    function, entries = evaluation.function, program.entries(evaluation)
    if function is None or not entries or program.possible_callers(function):
        return False
    for module, entry in entries:
        passed = None
        if isinstance(entry, ast.Call):
            passed = argument_for_parameter(evaluation.module, function, entry, evaluation.model)
        if passed is None:
            return False
        values = module.alternatives(passed, passed) or [passed]
        values = [part for each in values for part in branches(each)]
        held = [isinstance(each, ast.Attribute) and each.attr == "module" for each in values]
        names = [isinstance(each, ast.Name) for each in values]
        if not any(held) or not all(a or b for a, b in zip(held, names, strict=True)):
            return False
    return True


def branches(value: ast.expr) -> tuple[ast.expr, ...]:
    """The two values of a conditional expression, or the one of another."""
    return parts(value) if isinstance(value, ast.IfExp) else (value,)


def parts(choice: ast.IfExp) -> tuple[ast.expr, ast.expr]:
    """The two values of a conditional expression."""
    return choice.body, choice.orelse
