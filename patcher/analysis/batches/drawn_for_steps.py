"""Tensors that a script draws once and makes all its losses of, such as a random projection."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import everywhere, is_inside, parameters
from ..language.passed_arguments import argument_for_parameter
from ..models.wrapping import loops_that_step
from ..training.program import Program
from ..training.train_loops import TrainLoop
from .loss_names import names_of_losses
from .torch_draws import torch_draws

Place = tuple[Module, ast.expr]


def drawn_for_steps(program: Program) -> Iterator[tuple[Module, ast.Call]]:
    """The calls of torch that draw such a tensor, ahead of the training steps that use it.

    Of steps whose batches a loader gives: other ones may draw their data, each rank its own.
    """
    draws = {call for _, call in torch_draws(program)}
    for loop in loops_that_step(program) if draws else ():
        if loop.loader is None:
            continue
        for module, value in values_from_outside(program, loop):
            calls = everywhere(value, ast.Call)
            if all(makes_tensor(module, call) for call in calls):
                yield from ((module, call) for call in calls if call in draws)


def values_from_outside(program: Program, loop: TrainLoop) -> Iterator[Place]:
    """What the names stand for of which steps make losses, and that these do not bind."""
    module, function = loop.module, loop.module.function(loop.steps)
    around = loop.epochs or loop.steps
    for name in sorted(names_of_losses(loop)):
        attribute = name.removeprefix("self.")
        if attribute != name:
            yield from ((module, value) for value in module.attribute_values.get(attribute, ()))
        elif function is not None and name in parameters(function):
            for where, call in program.callers(function):
                passed = argument_for_parameter(module, function, call, name)
                if passed is not None:
                    yield from ((where, each) for each in where.alternatives(passed, passed))
        else:
            for store in module.stores.get((function, name), ()):
                stmt = module.parents[store]
                if isinstance(stmt, ast.Assign) and not is_inside(stmt, around):
                    yield module, stmt.value


def makes_tensor(module: Module, call: ast.Call) -> bool:
    """Whether a call is of torch's functions on tensors, or a method of a tensor."""
    dotted = module.dotted(call.func)
    if dotted.startswith("torch."):
        return not dotted.startswith(("torch.nn.", "torch.utils.", "torch.optim."))
    owner: ast.expr = call.func
    while isinstance(owner, ast.Attribute | ast.Call):
        owner = owner.func if isinstance(owner, ast.Call) else owner.value
    return isinstance(call.func, ast.Attribute) and module.dotted(owner) == "torch"
