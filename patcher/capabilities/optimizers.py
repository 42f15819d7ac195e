"""Find the optimizer that a script steps, and where it is made."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...record import record
from ..analysis.language.passed_arguments import argument_for_parameter
from ..analysis.training.program import Program
from ..analysis.training.schedules import is_schedule
from ..analysis.training.train_loops import TrainLoop
from ..source.module import Module
from ..source.tree import Function, bound_names, parameters, precedes, within
from .errors import CannotError
from .models import DdpWrap


@record
class StepOptimizer:
    """The optimizer of a training, by its name where it is made, or where the model is wrapped.

    ``made_after`` is the statement that makes it, where that comes after the wrapping.
    """

    module: Module
    name: str
    made_after: ast.Assign | None


def step_optimizer(program: Program, wrap: DdpWrap) -> StepOptimizer:
    """The only optimizer that the program steps. Raises CannotError."""
    found: dict[tuple[Module, Function | None, str], None] = {}
    for loop in program.train_loops:
        if program.is_live(loop.module, loop.steps):
            for text in stepped_names(loop):
                found |= dict.fromkeys(places_of(program, wrap, loop.module, loop.steps, text))
    if len(found) != 1:
        because = f"it steps {len(found)} optimizers" if found else "its optimizer is not known"
        raise CannotError(wrap.module, wrap.stmt, because)
    ((module, function, name),) = found
    body = module.tree.body if function is None else function.body
    made = [
        stmt
        for stmt in within(body, ast.Assign)
        if isinstance(stmt.value, ast.Call) and name in target_texts(module, stmt)
    ]
    is_here = (module, function) == (wrap.module, wrap.module.function(wrap.stmt))
    if not made and is_here and function and name in parameters(function):
        return StepOptimizer(module, name, None)
    if is_here and made and all(precedes(stmt, wrap.stmt) for stmt in made):
        return StepOptimizer(module, name, None)
    if len(made) != 1:
        raise CannotError(wrap.module, wrap.stmt, f"{name} is made in {len(made)} places")
    return StepOptimizer(module, name, made[0])


def target_texts(module: Module, stmt: ast.Assign) -> Iterator[str]:
    """What an assignment binds, as source text."""
    for target in stmt.targets:
        for each in target.elts if isinstance(target, ast.Tuple) else [target]:
            yield module.text(each)


def stepped_names(loop: TrainLoop) -> Iterator[str]:
    """The optimizers of a loop: ``x`` of ``x.step()`` and of ``scaler.step(x)``."""
    module = loop.module
    for call in within(loop.steps.body, ast.Call):
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "step"):
            continue
        stepped = call.args[0] if call.args else call.func.value
        if isinstance(stepped, ast.Name | ast.Attribute) and not is_schedule(module, stepped):
            yield module.text(stepped)


def places_of(
    program: Program,
    wrap: DdpWrap,
    module: Module,
    node: ast.AST,
    name: str,
    seen: frozenset[Function] = frozenset(),
) -> Iterator[tuple[Module, Function | None, str]]:
    """The function that makes what is called ``name`` at ``node``, or that wraps the model."""
    function, goal = module.function(node), wrap.module.function(wrap.stmt)
    if module is wrap.module and function is goal:
        yield module, function, name
    elif name.startswith("self."):
        if module is wrap.module and module.enclosing_class(node):
            yield module, goal, name
    elif function is None or name in bound_names(function.body):
        yield module, function, name
    elif name not in parameters(function):
        yield module, None, name
    elif function not in seen:
        for where, call in program.callers(function):
            value = argument_for_parameter(module, function, call, name)
            if isinstance(value, ast.Name | ast.Attribute):
                text, more = where.text(value), seen | {function}
                yield from places_of(program, wrap, where, call, text, more)
