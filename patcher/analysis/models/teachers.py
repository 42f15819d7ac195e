"""Models that answer in a training step without gradients, and that no optimizer trains."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import Function, is_inside, names_within, parameters, precedes, within
from ..language.passed_arguments import argument_for_parameter
from ..training.program import Program
from .trained_models import LOSS, last_part, names_given, trained_models
from .wrapper_attributes import is_gradless


def only_teaches(program: Program, module: Module, stmt: ast.Assign) -> bool:
    """Whether the model that a statement binds to a name is a teacher, as far as this is known.

    All calls of it stand under ``no_grad``, and it goes to evaluations only, or to what does
    nothing else with it, such as a function that scores two models on two loaders at a time.
    """
    target = stmt.targets[0]
    trained = {last_part(name) for name in trained_models(program)}
    if not isinstance(target, ast.Name) or not trained:
        return False
    names = {target.id, *names_given(program, module, target)}
    if trained & set(map(last_part, names)):
        return False
    scoring = {each.function for each in program.evaluations} - {None}
    is_called = False
    for call in within(module.scope_statements(stmt), ast.Call):
        if not precedes(stmt, call) or is_inside(call, stmt):
            continue
        if isinstance(call.func, ast.Name) and call.func.id == target.id:
            if not is_gradless(module, call):
                return False
            is_called = True
        values = [*call.args, *(word.value for word in call.keywords)]
        if any(isinstance(value, ast.Name) and value.id == target.id for value in values):
            called = program.callees(module, call)
            is_wrap = module.last_name(call.func) in ("DataParallel", "hasattr", "isinstance")
            if not is_wrap and not (
                called
                and all(
                    each in scoring or only_asks(where, each, call, target.id)
                    for where, each in called
                )
            ):
                return False
    return is_called


def only_asks(module: Module, function: Function, call: ast.Call, model: str) -> bool:
    """Whether a function calls a model of its caller's without gradients, and no more.

    ``teacher.eval()`` besides.
    """
    names = {
        name
        for name in parameters(function)
        for value in [argument_for_parameter(module, function, call, name)]
        if isinstance(value, ast.Name) and value.id == model
    }
    uses = names_within(function.body, names)
    return bool(names) and all(
        (isinstance(use, ast.Attribute) and use.attr in ("eval", "to"))
        or (isinstance(use, ast.Call) and use.func is name and is_gradless(module, use))
        for name in uses
        for use in [module.parents[name]]
    )


def is_of_a_loss(program: Program, module: Module, stmt: ast.Assign) -> bool:
    """Whether what a statement wraps is a part of a loss that no optimizer is given.

    ``self.networks = DataParallel(self.networks)`` of ``class Loss``: DistributedDataParallel
    raises where nothing has a gradient.
    """
    target, owner = stmt.targets[0], module.enclosing_class(stmt)
    if not isinstance(target, ast.Attribute) or owner is None or not LOSS.search(owner.name):
        return False
    names = {target.attr} | {
        last_part(where.text(bound))
        for where, call in program.calls_to(owner.name)
        if isinstance(made := where.parents[call], ast.Assign)
        for bound in made.targets
    }
    asked = {
        last_part(where.text(call.func.value))
        for where, call in program.calls_to("parameters", "named_parameters")
        if isinstance(call.func, ast.Attribute)
    }
    return bool(asked) and not names & (asked | set(map(last_part, trained_models(program))))
