"""Evaluation is kept from some ranks, or from all of them.

What         A call of an evaluation function stands under a test of the rank: == -1, or rank 0. A
             warning for rank 0 where no wrapper holds the model, or one without buffers to send.
At run time  Under == -1 a distributed run never evaluates: no best model, and a crash where the
             result is used. Under rank 0 alone, the other ranks run on into the next all-reduce
             or leave: a hang, a crash, or luck. They only wait where no wrapper holds the model.
Example      if args.local_rank == -1 and args.evaluate_during_training: results = evaluate(…)
Fix          Drop the rank part of the tests, so that every rank evaluates its share. An ``else``
             by which ranks only save instead goes with it.
Fix safety   Safe: for a lone process these tests hold. Files written there get one writer by
             DF601 and DF602.
Source       torch.nn.parallel.DistributedDataParallel (forward synchronises buffers)
"""

import ast
from collections.abc import Iterator

from ..analysis.models.buffers import forward_meets
from ..analysis.ranks.evaluating_ranks import may_be_bare, ranks_evaluate_elsewhere
from ..analysis.ranks.rank_reach import Role, rank_gates, value_for_role
from ..analysis.training.evaluations import Evaluation
from ..analysis.training.program import Program
from ..findings import Finding, Safety, Severity
from ..fixes.evaluated_modules import takes_module_out
from ..fixes.opened_gates import open_gate
from ..source.branches import exclusive
from ..source.module import Module
from ..source.tree import Function, is_inside

CODE, SEVERITY, SAFETY = "DF501", Severity.ERROR, Safety.SAFE

MAIN_ALONE = "rank 0 alone"


def findings(program: Program) -> Iterator[Finding]:
    seen: set[ast.If] = set()
    for evaluation in program.evaluations:
        if ranks_evaluate_elsewhere(program, evaluation):
            continue
        for module, entry in program.entries(evaluation):
            for where, gate in gates_on_the_way(program, evaluation, module, entry):
                if gate in seen:
                    continue
                seen.add(gate)
                who = (
                    "no rank"
                    if value_for_role(where, gate.test, Role.MAIN) is False
                    else MAIN_ALONE
                )
                because = f"{who} reaches {evaluation.name}{entry_line(entry, evaluation)}"
                waits = who == MAIN_ALONE and (
                    may_be_bare(program, module, entry, evaluation)
                    or takes_module_out(evaluation)
                    or not forward_meets(program, evaluation)
                )
                severity = Severity.DEGRADED if waits else None
                yield Finding(where, gate, because, open_gate(where, gate), severity=severity)


def gates_on_the_way(
    program: Program, evaluation: Evaluation, module: Module, entry: ast.AST
) -> Iterator[tuple[Module, ast.If]]:
    """The tests that keep ranks from an evaluation: around its call, and around those above.

    Those above only where its examples are dealt, so that rank 0 alone scores its part; and only up
    to the function that trains: who comes to that is not the evaluation's matter.
    """
    training = {loop.module.function(loop.steps) for loop in program.train_loops}
    entries = program.entries(evaluation)
    places: list[tuple[Module, ast.AST]] = [(module, entry)]
    seen: set[Function] = set()
    while places:
        where, place = places.pop(0)
        for gate in rank_gates(where, place):
            if not any(exclusive(place, other) and is_inside(other, gate) for _, other in entries):
                yield where, gate  # else the ranks that it sends away evaluate in its other branch
        function = where.function(place) if evaluation.loader.distributed_samplers else None
        if function is None or any(isinstance(up, Function) for up in where.ancestors(function)):
            continue  # a function inside another may use what only rank 0 has there
        if function not in seen and function not in training:
            seen.add(function)
            places += program.callers(function)


def entry_line(entry: ast.AST, evaluation: Evaluation) -> str:
    """The line of the call; the name of an evaluation without a function has its line already."""
    return f" in line {entry.lineno}" if isinstance(entry, ast.Call) and evaluation.function else ""
