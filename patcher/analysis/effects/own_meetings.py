"""Evaluations in which ranks wait for each other, and to which each comes by its own loss."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import (
    Function,
    argument_values,
    bound_names,
    everywhere,
    parameters,
    within,
)
from ..language.passed_arguments import argument_for_parameter
from ..models.buffers import may_have_buffers, may_send
from ..ranks.evaluating_ranks import wrapped_names
from ..ranks.rank_divergence import (
    changes_by_own_batches,
    decisions_by,
    own_steps_and_results,
)
from ..ranks.rank_reach import RANKS, roles_reaching
from ..training.evaluations import is_eval_mode
from ..training.program import Program
from ..training.train_loops import TrainLoop
from .effects import effects_of_call, is_collective


def meets_others(program: Program, module: Module, stmt: ast.stmt) -> bool:
    """Whether all ranks come to a statement, and wait for each other in what it calls.

    By a collective, or by the buffers that a wrapper sends with a pass in eval mode.
    """
    calls = [] if isinstance(stmt, ast.If) else everywhere(stmt, ast.Call)
    return bool(calls) and (
        any(waits(program, module, call) for call in calls)
        and roles_reaching(program, module, stmt) >= RANKS
    )


def waits(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether a call may come to a collective on all ranks, or passes the wrapper in eval mode."""
    return passes_wrapper(program, module, call) or any(
        each.roles >= RANKS and is_collective(each.effect)
        for each in effects_of_call(program, module, call)
    )


def passes_wrapper(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether a function puts the wrapped model that it gets into eval mode, and calls it.

    One that evaluates a loader gets the module instead (DF504).
    """
    wrapped = wrapped_names(program)
    if not wrapped or not any(module.text(each) in wrapped for each in argument_values(call)):
        return False
    evaluating = {each.function for each in program.evaluations}
    for where, function in program.callees(module, call):
        if function in evaluating:
            continue
        for name in modes_and_calls(where, function):
            value = argument_for_parameter(where, function, call, name)
            if (
                value is not None
                and module.text(value) in wrapped
                and may_have_buffers(program, module, value)
                and may_send(program)
            ):
                return True
    return False


def modes_and_calls(module: Module, function: Function) -> list[str]:
    """The parameters of a function that it puts into eval mode, and calls as they came."""
    calls = within(function.body, ast.Call)
    modes = {
        module.text(call.func.value)
        for call in calls
        if is_eval_mode(call) and isinstance(call.func, ast.Attribute)
    }
    called = {call.func.id for call in calls if isinstance(call.func, ast.Name)}
    rebound = set[str]().union(*(bound_names(stmt) for stmt in function.body))
    return [name for name in parameters(function) if name in (modes & called) - rebound]


def meetings_by_own_batches(
    program: Program, loop: TrainLoop
) -> Iterator[tuple[Module, ast.stmt, ast.expr]]:
    """Statements by which ranks meet, as each decides by the loss of its own batches.

    Each with what decides: in the function of a training loop, beside the loop, and in those that
    call it.
    """

    def matters(module: Module, stmt: ast.stmt) -> bool:
        return loop.steps not in module.ancestors(stmt) and meets_others(program, module, stmt)

    for stmt, test, _ in changes_by_own_batches(program, loop, matters):
        yield loop.module, stmt, test.test
    _, results = own_steps_and_results(program, loop)
    function = loop.module.function(loop.steps)
    for module, call in program.callers(function) if results and function is not None else ():
        for decided, by in decisions_by(program, module, loop, call, matters):
            if isinstance(decided, ast.stmt) and matters(module, decided):
                yield module, decided, by
