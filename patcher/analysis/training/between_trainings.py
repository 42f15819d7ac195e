"""Code that runs in a training, or between two of them."""

from __future__ import annotations

import ast

from ...source.branches import exclusive
from ...source.module import Module
from ...source.tree import Function, precedes, within
from ..language.names import answered_once
from .program import Program

MAX_CALL_DEPTH = 4  # functions between the loop over epochs and such code


def training_loops(program: Program) -> set[ast.AST]:
    """Loops that train, and the loops around them, also in functions that call theirs."""
    loops: set[ast.AST] = set()
    for loop in program.train_loops:
        loops |= {loop.steps, loop.epochs or loop.steps}
    for function in training_functions(program):
        for caller, call in program.callers(function):
            loops |= {up for up in caller.ancestors(call) if isinstance(up, ast.For | ast.While)}
    return loops


@answered_once
def training_functions(program: Program) -> frozenset[Function]:
    """Functions with a training loop, and those that call them."""
    level = {loop.module.function(loop.steps) for loop in program.train_loops} - {None}
    found: set[Function] = set()
    for _ in range(MAX_CALL_DEPTH):
        found |= {each for each in level if each is not None}
        above = [place for each in level if each is not None for place in program.callers(each)]
        level = {caller.function(call) for caller, call in above} - found - {None}
    return frozenset(found)


def is_reached_in_training(
    program: Program,
    loops: set[ast.AST],
    module: Module,
    node: ast.AST,
    *,
    exclusively: bool = False,
    depth: int = 0,
    beside: tuple[bool, bool] = (False, False),
) -> bool:
    """Whether ``node`` runs in a training loop, or between two; ``exclusively``: nowhere else.

    ``beside``: whether trainings are known already that run ahead of it, and behind.
    """
    above, below = trainings_around(program, module, node)
    beside = (beside[0] or above, beside[1] or below)
    if not loops.isdisjoint(module.ancestors(node)) or all(beside):
        return True
    function = module.function(node)
    callers = program.callers(function) if function is not None and depth < MAX_CALL_DEPTH else []
    answers = (
        is_reached_in_training(
            program, loops, caller, call, exclusively=exclusively, depth=depth + 1, beside=beside
        )
        for caller, call in callers
    )
    return bool(callers) and (all(answers) if exclusively else any(answers))


def trainings_beside(program: Program, module: Module, node: ast.AST) -> list[ast.Call]:
    """The calls in the function around ``node`` of functions that train."""
    training = training_functions(program)
    return [
        call
        for call in within(module.scope_statements(node), ast.Call)
        if any(function in training for _, function in program.callees(module, call))
    ]


def trainings_around(program: Program, module: Module, node: ast.AST) -> tuple[bool, bool]:
    """Whether training loops, or calls of functions that train, stand above ``node``, and below."""
    function = module.function(node)
    trainings: list[ast.AST] = [*trainings_beside(program, module, node)]
    trainings += [
        loop.steps
        for loop in program.train_loops
        if loop.module is module and module.function(loop.steps) is function
    ]
    trainings = [each for each in trainings if not exclusive(each, node)]
    return (
        any(precedes(each, node) for each in trainings),
        any(precedes(node, each) for each in trainings),
    )
