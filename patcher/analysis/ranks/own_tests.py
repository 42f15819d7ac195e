"""Tests of the training step that ranks may answer differently, by what is in their own batches."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import Function, everywhere, is_inside, parameters, within
from ..language.names import answered_once
from ..language.passed_arguments import default_value
from ..training.program import Program
from ..training.train_loops import TrainLoop
from .divergence_walk import SIZES, DivergenceWalk
from .rank_divergence import own_parameters_of, walk_of

OF_KINDS = (ast.In, ast.NotIn, ast.Is, ast.IsNot)


def own_test_around(program: Program, module: Module, node: ast.AST) -> ast.If | None:
    """The outermost test around a place of a training step that ranks may answer differently.

    By what they have of their batches, also by how many of something a call has found in them.
    What a batch has, as in ``if labels is not None``, is taken to be the same on all ranks.
    """
    steps, tests = tests_around(program, module, node)
    if not tests:
        return None
    walk, own = walk_through(program, module, module.function(node), steps)
    return next((test for test in tests if is_own(walk, test.test, own)), None)


def tests_around(
    program: Program, module: Module, node: ast.AST
) -> tuple[ast.For | ast.While | None, list[ast.If]]:
    """The training loop around a place, None in another function; and the tests below it.

    In another function those of the function, the outermost first.
    """
    loops = {loop.steps for loop in program.train_loops}
    tests: list[ast.If] = []
    for up in module.ancestors(node) if loops else ():
        if isinstance(up, ast.For | ast.While) and up in loops:
            return up, tests
        if isinstance(up, Function):
            break
        if isinstance(up, ast.If) and node is not up.test and not is_inside(node, up.test):
            tests.insert(0, up)
    return None, tests


@answered_once
def walk_through(
    program: Program, module: Module, function: Function | None, steps: ast.For | ast.While | None
) -> tuple[DivergenceWalk, frozenset[str]]:
    """A walk through a function that trains, or that a step calls, and what is of a rank's own."""
    loop = next((each for each in program.train_loops if each.steps is steps), None)
    loop = loop or program.train_loops[0]
    handed = frozenset[str]()
    if steps is None and function is not None:
        handed = handed_batches(program, loop, module, function)
    walk = walk_of(program, module, loop, set(), set(), wherever_from=True)
    walk.block(module.tree.body if function is None else function.body, set(handed), None)
    return walk, handed | frozenset(walk.tainted_by)


def handed_batches(
    program: Program, loop: TrainLoop, module: Module, function: Function
) -> frozenset[str]:
    """Parameters of a function that are of a rank's batches.

    All of those of a function that no step calls by name, as of a forward pass.
    """
    callers = program.callers(function)
    calls = [
        call for where, call in callers if where is loop.module and is_inside(call, loop.steps)
    ]
    if not calls:
        return frozenset(parameters(function)) - {"self"}
    handed = (own_parameters_of(program, loop, call, module, function) for call in calls)
    return frozenset().union(*handed)


def is_own(walk: DivergenceWalk, test: ast.expr, own: frozenset[str]) -> bool:
    """Whether the answer to a test, or to a part of it, hangs on what a rank has of its batches."""
    if isinstance(test, ast.BoolOp):
        return any(is_own(walk, value, own) for value in test.values)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return is_own(walk, test.operand, own)
    if isinstance(test, ast.Compare) and any(isinstance(op, OF_KINDS) for op in test.ops):
        return False
    if isinstance(test, ast.Name) and is_flag(walk.module, test):
        return False
    return walk.depends_on(test, set(own)) or counts_own(walk, test, own)


def is_flag(module: Module, name: ast.Name) -> bool:
    """Whether a name is a parameter whose default is True or False, as ``train=True``."""
    function = module.function(name)
    default = default_value(function, name.id) if function is not None else None
    return isinstance(default, ast.Constant) and isinstance(default.value, bool)


def counts_own(walk: DivergenceWalk, test: ast.expr, own: frozenset[str]) -> bool:
    """Whether a test counts what a call has made of a batch: ``if len(found) > 0``.

    A call on a part of the batch itself, as ``x.to(device)``, leaves it as long as it is.
    """
    counted = [
        name
        for call in everywhere(test, ast.Call)
        if walk.module.last_name(call.func) in SIZES
        for name in everywhere(call, ast.Name)
    ]
    counted += [
        part.value
        for part in everywhere(test, ast.Attribute)
        if part.attr in SIZES and isinstance(part.value, ast.Name)
    ]
    return any(name.id in own and is_made(walk, name.id, own) for name in counted)


def is_made(walk: DivergenceWalk, name: str, own: frozenset[str]) -> bool:
    """Whether a statement gives a name what a call of another thing makes of a batch."""
    for stmt in walk.tainted_by.get(name, ()):
        for call in within(stmt, ast.Call) if not isinstance(stmt, ast.For) else ():
            root = call.func
            while isinstance(root, ast.Attribute | ast.Subscript | ast.Call):
                root = root.func if isinstance(root, ast.Call) else root.value
            is_of_library = walk.module.dotted(call.func).startswith("torch.")
            is_of_batch = isinstance(root, ast.Name) and root.id in own
            if not is_of_library and not is_of_batch:
                return True
    return False
