"""Places of a function between which all ranks meet."""

from __future__ import annotations

import ast

from ...source.branches import is_in
from ...source.module import Module
from ...source.tree import (
    Function,
    bound_names,
    everywhere,
    is_inside,
    precedes,
    same_code,
    within,
)
from ..ranks.rank_reach import RANKS, roles_reaching
from ..training.program import Program
from .effects import effects_of_call, is_collective

CONTRARY: dict[type[ast.cmpop], type[ast.cmpop]] = {  # what holds where the other does not
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}


def waits_between(
    program: Program,
    module: Module,
    first: ast.Call,
    stmt: ast.stmt,
    *,
    together: bool = False,
) -> bool:
    """Whether all ranks meet between a call and ``stmt`` below it, in a block around ``stmt``.

    At a barrier or another collective, or in a function that always comes to one, where every way
    to ``stmt`` calls it. ``together``: not where some come to the barrier here, others elsewhere.
    """
    above: set[ast.AST] = set()
    for node in (stmt, *module.ancestors(stmt)):
        if isinstance(node, Function):
            break
        if isinstance(node, ast.stmt):
            body = module.body(node)
            above |= set(body[: body.index(node)])
    return any(
        precedes(first, call)
        and precedes(call, stmt)
        and any(parent in above for parent in module.ancestors(call))
        and not (together and roles_reaching(program, module, call) & RANKS != RANKS)
        and (module.last_name(call.func) == "barrier" or always_meets(program, module, call, above))
        for call in within(module.scope_statements(stmt), ast.Call)
    )


def waits_a_round(program: Program, module: Module, first: ast.Call, second: ast.Call) -> bool:
    """Whether two calls are never made in one round of a loop, in which all ranks meet or train.

    ``for epoch in range(n): train(model)``, and then ``if epoch < 9: save() else: load()``, or the
    same test twice: what one round saves is written before the next one's gradients are averaged.
    """
    loops = [
        up
        for up in module.ancestors(first)
        if isinstance(up, ast.For) and is_inside(second, up) and not isinstance(up, Function)
    ]
    trained = {loop.module.function(loop.steps) for loop in program.train_loops}
    contrary = [
        test
        for test, outcome in _answers(module, first)
        for other, answer in _answers(module, second)
        if excludes(test, outcome, other, answer)
    ]
    for loop in loops:
        inner = [other for other in loops if is_inside(other, loop)]
        told = bound_names(loop.target)
        read = [{name.id for name in everywhere(test, ast.Name)} for test in contrary]
        if not any(names & told for names in read) or any(
            names & bound_names(other) for names in read for other in inner
        ):
            continue
        above = [stmt for stmt in loop.body if precedes(stmt, first) and precedes(stmt, second)]
        return any(
            always_meets(program, module, call, {*above})
            or any(function in trained for _, function in program.callees(module, call))
            for stmt in above
            for call in everywhere(stmt, ast.Call)
            if module.parents[module.statement(call)] is loop
        )
    return False


def _answers(module: Module, node: ast.AST) -> list[tuple[ast.expr, bool]]:
    """The tests around a place in its function, each with the answer that leads there."""
    found: list[tuple[ast.expr, bool]] = []
    for up in module.ancestors(node):
        if isinstance(up, Function):
            break
        if isinstance(up, ast.If) and not is_in(node, up.test):
            outcome = any(is_in(node, stmt) for stmt in up.body)
            parts = [up.test]
            if outcome and isinstance(up.test, ast.BoolOp) and isinstance(up.test.op, ast.And):
                parts = up.test.values
            found += [(part, outcome) for part in parts]
    return found


def excludes(test: ast.expr, outcome: bool, other: ast.expr, answer: bool) -> bool:
    """Whether two answers cannot both be: of one test, or of ``a < b`` and ``a >= b``."""
    if test is other or same_code(test, other):
        return outcome is not answer
    match test, other:
        case ast.Compare(ops=[one], comparators=[right]), ast.Compare(ops=[two], comparators=[to]):
            alike = same_code(test.left, other.left) and same_code(right, to)
            return alike and CONTRARY.get(type(one)) is type(two) and outcome is answer
    return False


def always_meets(program: Program, module: Module, call: ast.Call, above: set[ast.AST]) -> bool:
    """Whether a call is made on every way past ``above``, and always comes to a collective."""
    for up in module.ancestors(call):
        if isinstance(up, ast.If | ast.For | ast.While | ast.Try | ast.IfExp | ast.BoolOp):
            return False
        if up in above:
            break
    return any(
        is_collective(each.effect)
        and (each.always or each.effect.node is call)
        and each.roles >= RANKS
        for each in effects_of_call(program, module, call)
    )
