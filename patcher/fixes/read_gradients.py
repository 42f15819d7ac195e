"""Gradients of parameters that a step reads between backward passes, as an attack on weights does.

They are those of a rank's own batch until they are averaged: each rank would then attack its
weights in a direction of its own, and go back from there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..analysis.training.frameworks import SEES_PARAMETERS
from ..analysis.training.program import Program
from ..analysis.training.train_loops import TrainLoop, is_backward, is_optimizer_step
from ..source.module import Module
from ..source.tree import Function, everywhere, within


def read_between_passes(
    program: Program, loops: list[TrainLoop]
) -> Iterator[tuple[Module, ast.stmt]]:
    """The statements that read gradients of parameters behind one pass and ahead of another."""
    readers = reading_functions(program)
    if not readers:
        return
    possible = {
        call
        for reader in readers
        if reader is not None
        for _, call in program.possible_callers(reader)
    }
    seen: set[ast.stmt] = set()
    for module, body, is_behind in bodies_of_steps(program, loops):
        for stmt in between_passes(module, body, is_behind):
            is_reader = reads(program, module, stmt, readers) or not possible.isdisjoint(
                everywhere(stmt, ast.Call)
            )
            if is_reader and stmt not in seen:
                seen.add(stmt)
                yield module, stmt


def reads_between_passes(program: Program, loop: TrainLoop) -> bool:
    """Whether steps of a loop read gradients of parameters, and then go back again.

    Also where a method that may be called does both: the attack of an object.
    """
    readers = reading_functions(program)
    if not readers:
        return False
    if any(read_between_passes(program, [loop])):
        return True
    for call in within(loop.steps.body, ast.Call):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        for where, function in program.functions_by_name.get(name, ()):
            below = [function, *(each for _, each in program.functions_below(where, function))]
            if not readers.isdisjoint(below) and any(goes_back(each.body) for each in below):
                return True
    return False


def reading_functions(program: Program) -> set[Function | None]:
    """The functions that read gradients of parameters; None for the module's own code."""
    return {
        module.function(read)
        for module in program.modules
        for read in module.attributes("grad")
        if isinstance(read.ctx, ast.Load) and is_of_parameter(module, read)
    }


def is_of_parameter(module: Module, read: ast.Attribute) -> bool:
    """Whether ``x.grad`` is of a model's parameter: ``for name, x in model.named_parameters()``.

    Where it may be of an input of a model, each rank has to read its own.
    """
    base = read.value
    while isinstance(base, ast.Attribute) and base.attr == "data":
        base = base.value
    if isinstance(base, ast.Attribute):
        return base.attr in ("weight", "bias")  # model.embedding.weight.grad
    return isinstance(base, ast.Name) and any(
        base.id in {name.id for name in everywhere(target, ast.Name)}
        for target, source in loops_over(module, read)
        if any(
            module.last_name(call.func) in SEES_PARAMETERS
            for value in (source, *lists_in(module, source))
            for call in everywhere(value, ast.Call)
        )
    )


def lists_in(module: Module, source: ast.expr) -> list[ast.expr]:
    """What names in an iterable stand for: ``params`` of ``params = list(model.parameters())``."""
    return [
        value for name in everywhere(source, ast.Name) for value in module.alternatives(name, name)
    ]


def loops_over(module: Module, node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The targets of loops and comprehensions around a node, each with what it goes over."""
    for up in module.ancestors(node):
        if isinstance(up, Function):
            return
        if isinstance(up, ast.For):
            yield up.target, up.iter
        if isinstance(up, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp):
            yield from ((each.target, each.iter) for each in up.generators)


def bodies_of_steps(
    program: Program, loops: list[TrainLoop]
) -> Iterator[tuple[Module, list[ast.stmt], bool]]:
    """The code that steps run and that goes back: loops' bodies, and functions that they call.

    With each whether a pass may lie ahead of it.
    """
    for loop in loops:
        yield loop.module, loop.steps.body, False
        for module, function in program.functions_below(loop.module, *loop.steps.body):
            if goes_back(function.body):
                yield module, function.body, True


def between_passes(module: Module, body: list[ast.stmt], has_gone_back: bool) -> Iterator[ast.stmt]:
    """The simple statements of code, and loops over parameters, that lie between two passes.

    An optimizer that steps ends what comes from the passes above it.
    """
    waiting: list[ast.stmt] = []
    for stmt in simple_statements(module, body):
        if goes_back([stmt]):
            yield from waiting
            waiting, has_gone_back = [], True
        elif any(is_optimizer_step(module, call) for call in everywhere(stmt, ast.Call)):
            waiting, has_gone_back = [], False
        elif has_gone_back:
            waiting.append(stmt)


def simple_statements(module: Module, body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that hold no others, and whole loops over the parameters of a model.

    In the order in which they run; those of a loop that goes back come twice.
    """
    for stmt in body:
        if isinstance(stmt, ast.For) and any(
            module.last_name(call.func) in SEES_PARAMETERS
            for call in everywhere(stmt.iter, ast.Call)
        ):
            yield stmt
        elif isinstance(stmt, ast.For | ast.While | ast.If | ast.With | ast.Try):
            for block in ("body", "orelse", "finalbody"):
                yield from simple_statements(module, getattr(stmt, block, []))
            if isinstance(stmt, ast.For | ast.While) and goes_back(stmt.body):
                yield from simple_statements(module, stmt.body)
        elif not isinstance(stmt, Function | ast.ClassDef):
            yield stmt


def goes_back(body: list[ast.stmt]) -> bool:
    """Whether a backward pass stands in code."""
    return any(map(is_backward, within(body, ast.Call)))


def reads(program: Program, module: Module, stmt: ast.stmt, readers: set[Function | None]) -> bool:
    """Whether a statement reads gradients of parameters, itself or in functions that it calls."""
    return any(
        isinstance(each.ctx, ast.Load) and is_of_parameter(module, each)
        for each in everywhere(stmt, ast.Attribute)
        if each.attr == "grad"
    ) or any(function in readers for _, function in program.functions_below(module, stmt))
