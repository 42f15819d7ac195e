"""Whether an evaluation runs the module that DistributedDataParallel wraps, or the wrapper."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..analysis.language.objects import class_of, classes_above
from ..analysis.language.passed_arguments import argument_for_parameter
from ..analysis.models.saved_wrappers import is_wrapped
from ..analysis.models.wrapping import one_process_wraps
from ..analysis.training.evaluations import Evaluation
from ..analysis.training.program import Program
from ..source.module import Module
from ..source.tree import (
    Function,
    argument_values,
    everywhere,
    mentions,
    names_within,
    parameters,
    within,
)
from .process_group import unwrapped_model

UNWRAPPED_NAME = "eval_model"
WRAPPERS = ("DistributedDataParallel", "DataParallel")
MAX_CALLS = 3  # functions between an evaluation and what it saves
PLAIN_BASES = ("object", "abc.ABC", "typing.Generic", "typing.Protocol")


def runs_the_module(evaluation: Evaluation) -> bool:
    """Whether the module is taken out of its wrapper before the loop, in the function around it."""
    if evaluation.function is not None and evaluation.model in parameters(evaluation.function):
        return is_unwrapped(evaluation)
    uses = list(model_uses(evaluation))
    if not uses:
        return bool(names_within(evaluation.loop.body, {UNWRAPPED_NAME}))
    return is_the_module(evaluation.module, uses[0])


def is_plain_object(program: Program, evaluation: Evaluation) -> bool:
    """Whether what is put in eval mode is surely no module, but an object that keeps one.

    It has no ``module`` to take out, and no parameters or buffers to ask for.
    """
    module = evaluation.module
    for call in within(evaluation.mode, ast.Call):
        func = call.func
        if isinstance(func, ast.Attribute) and module.text(func.value) == evaluation.model:
            owner = class_of(program, module, func.value)
            return owner is not None and all(
                program.resolve(where, base) is not None or where.dotted(base) in PLAIN_BASES
                for where, definition in classes_above(program, owner)
                for base in definition.bases
            )
    return False


def is_the_module(module: Module, use: ast.expr) -> bool:
    """Whether a plain name is what was taken out of a wrapper above."""
    value = module.definition(use, use)
    if not isinstance(value, ast.Call) or not value.args:
        return False
    return module.text(value) == unwrapped_model(module.text(value.args[0]))


def model_uses(evaluation: Evaluation) -> Iterator[ast.expr]:
    """Where the loop reads the model, but for what asks it for the names of its parameters."""
    module, body = evaluation.module, evaluation.loop.body
    last = evaluation.model.rpartition(".")[2]
    attributes = [node for node in within(body, ast.Attribute) if node.attr == last]
    for node in (*names_within(body, {last}), *attributes):
        if module.text(node) == evaluation.model and not asks_for_names(module, node):
            yield node


def takes_module_out(evaluation: Evaluation) -> bool:
    """Whether the loop asks its model for ``model.module`` wherever it reads it."""
    uses = list(model_uses(evaluation))
    around = [evaluation.module.parents[use] for use in uses]
    return bool(uses) and all(isinstance(u, ast.Attribute) and u.attr == "module" for u in around)


def is_taken_out_by_function(program: Program, evaluation: Evaluation) -> bool:
    """Whether the loop reads its model in ``bare(model)`` alone, which returns ``model.module``."""
    module, uses = evaluation.module, list(model_uses(evaluation))
    return bool(uses) and all(
        isinstance(call := module.parents[use], ast.Call)
        and use in call.args
        and any(
            isinstance(part, ast.Attribute) and part.attr == "module"
            for _, function in program.callees(module, call)
            for result in within(function.body, ast.Return)
            for part in everywhere(result, ast.Attribute)
        )
        for use in uses
    )


def calls_a_method_of_the_module(evaluation: Evaluation) -> bool:
    """``losses = model.module.get_losses if … else model.get_losses``, and the loop calls that."""
    module, loop = evaluation.module, evaluation.loop
    return not any(model_uses(evaluation)) and any(
        f"{evaluation.model}.module." in module.text(value)
        for call in within(loop.body, ast.Call)
        for value in module.alternatives(call.func, call)
    )


def needs_keys(program: Program, evaluation: Evaluation) -> bool:
    """Whether the function saves the model's state, whose keys are the wrapper's if it has one.

    Or loads one, and the program keeps the states of wrappers.
    """
    module, function, model = evaluation.module, evaluation.function, evaluation.model
    assert function is not None
    passed = names_within(function.body, {model})
    if any(asks_for_names(module, each) for each in passed):
        return True
    return asks_for(program, module, function, model, "state_dict", 0) or (
        asks_for(program, module, function, model, "load_state_dict", 0)
        and (one_process_wraps(program) or has_states_of_wrappers(program))
    )


def asks_for_names(module: Module, use: ast.expr) -> bool:
    """``ewc.penalty(model)``: a call that goes through a model's parameters by name, and no more.

    What it compares them with has the names that training passes, which are the wrapper's.
    """
    up = module.parents[use]
    call = module.parents[up] if isinstance(up, ast.keyword) else up
    if not isinstance(call, ast.Call) or module.graph is None or use not in argument_values(call):
        return False
    for where, callee in module.graph.callees(module, call):
        for parameter in parameters(callee):
            if argument_for_parameter(where, callee, call, parameter) is use:
                ups = [where.parents[each] for each in names_within(callee.body, {parameter})]
                if ups and all(getattr(up, "attr", "") == "named_parameters" for up in ups):
                    return True
    return False


def has_states_of_wrappers(program: Program) -> bool:
    """Whether the program asks a model for its state that is in a wrapper."""
    return any(
        isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and is_wrapped(program, module, call.func.value, wrappers=WRAPPERS)
        for module, call in program.calls_to("state_dict")
    )


def asks_for(
    program: Program, module: Module, function: Function, model: str, method: str, depth: int
) -> bool:
    """Whether a function, or one that it passes ``model`` on to, calls a method of it or saves."""
    for name in names_within(function.body, {model}):
        up = module.parents[name]
        if isinstance(up, ast.Attribute) and up.attr == method:
            return True
        call = module.parents[up] if isinstance(up, ast.keyword) else up
        if not isinstance(call, ast.Call) or name not in argument_values(call):
            continue
        if name in call.args and "save" in module.last_name(call.func):
            return True
        if depth < MAX_CALLS and any(
            argument_for_parameter(where, callee, call, parameter) is name
            and asks_for(program, where, callee, parameter, method, depth + 1)
            for where, callee in program.callees(module, call)
            for parameter in parameters(callee)
        ):
            return True
    return False


def is_unwrapped(evaluation: Evaluation) -> bool:
    """Whether the function takes ``.module`` out of its model before the loop."""
    assert evaluation.function is not None
    module = evaluation.module
    names = names_within(evaluation.function.body, {evaluation.model})
    stores = [name for name in names if isinstance(name.ctx, ast.Store)]
    if calls_a_method_of_the_module(evaluation):
        return True
    if names_within(evaluation.loop.body, {UNWRAPPED_NAME}) and not any(model_uses(evaluation)):
        return True
    return any(
        isinstance(stmt, ast.Assign)
        and (mentions(stmt.value, "module") or "'module'" in module.text(stmt.value))
        for stmt in map(module.statement, stores)
    )
