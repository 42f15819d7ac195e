"""Models that answer in a training step without gradients, and that no optimizer trains."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import is_inside, precedes, within
from ..training.program import Program
from .trained_models import LOSS, last_part, names_given, trained_models
from .wrapper_attributes import is_gradless


def only_teaches(program: Program, module: Module, stmt: ast.Assign) -> bool:
    """Whether the model that a statement binds to a name is a teacher, as far as this is known.

    All calls of it stand under ``no_grad``, and it goes to evaluations only.
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
            called = [function for _, function in program.callees(module, call)]
            is_wrap = module.last_name(call.func) in ("DataParallel", "hasattr", "isinstance")
            if not is_wrap and not (called and all(each in scoring for each in called)):
                return False
    return is_called


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
