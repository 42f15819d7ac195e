"""Whether every parameter of a trained model surely gets a gradient in each step."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import bound_names, is_inside, mentions, within
from ..language.name_flow import flows, names_in, reached, taking
from ..training.frameworks import SEES_PARAMETERS
from ..training.program import Program
from ..training.train_loops import TrainLoop
from .frozen_parameters import freeze_switches, is_frozen_late
from .gradient_flow import step_reaches_all
from .model_builder import HIDES_PARTS, model_part
from .model_parts import ModelPart, UnknownPartError
from .trained_models import last_part

UNSURE = (ast.If, ast.Try, ast.With)
WITHOUT_GRADIENT = ("detach", "data", "item", "no_grad")


def all_get_gradients(program: Program, target: str) -> bool:
    """Whether each backward pass surely reaches all parameters of the model called `target`.

    False also where that cannot be told: then torch has to look at each step.
    """
    loops = [loop for loop in program.train_loops if program.is_live(loop.module, loop.steps)]
    if not loops or any(changes_models(module, last_part(target)) for module in program.modules):
        return False
    if any(is_frozen_late(program, switch) for switch in freeze_switches(program)):
        return False
    name = last_part(target)
    return all(penalizes_all(loop, name) or _reaches_all(program, loop, name) for loop in loops)


def penalizes_all(loop: TrainLoop, name: str) -> bool:
    """Whether each loss of a step has a term of every parameter, as decay by hand has.

    ``loss = loss + 0.1 * sum(p.pow(2).sum() for p in model.parameters())``. Told to look for unused
    ones, torch would find some in the forward pass alone, and stop where their gradients come.
    """
    module, body = loop.module, loop.steps.body
    made = ((taking(targets), names_in(value)) for targets, value in flows(body))
    losses = reached(made, {name for each in loop.backwards for name in names_in(each)})
    for call in within(body, ast.Call):
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr not in SEES_PARAMETERS:
            continue
        stmt, up = module.statement(call), module.parents[call]
        around = module.ancestors(stmt)
        is_comprehension = isinstance(up, ast.comprehension) and not up.ifs
        is_loop = isinstance(stmt, ast.For) and stmt.iter is call and len(stmt.body) == 1
        goes_back = any(is_inside(each, stmt) for each in loop.backwards)
        if (
            (is_comprehension or is_loop)
            and len(loop.backwards) == 1
            and last_part(module.text(func.value)) == name
            and (goes_back or not losses.isdisjoint(bound_names(stmt)))
            and not any(isinstance(up, UNSURE) for up in around[: around.index(loop.steps)])
            and not within(stmt, ast.If)
            and not within(stmt, ast.IfExp)
            and not any(mentions(stmt, word) for word in WITHOUT_GRADIENT)
        ):
            return True
    return False


def _reaches_all(program: Program, loop: TrainLoop, name: str) -> bool:
    module = loop.module
    calls = {
        module.text(call.func): call.func
        for call in within(loop.steps.body, ast.Call)
        if isinstance(call.func, ast.Name | ast.Attribute)
        and last_part(module.text(call.func)) == name
    }
    if len(calls) != 1 or loop.goes_back_elsewhere:
        return False
    try:
        parts: dict[str, ModelPart] = {
            text: model_part(program, module, func) for text, func in calls.items()
        }
    except UnknownPartError:
        return False
    if not any(part.weights for part in parts.values()):
        return False
    return step_reaches_all(program, module, loop.steps.body, parts)


def changes_models(module: Module, name: str) -> bool:
    """Whether a module exchanges or adds layers of a model that is made already.

    ``model.fc = nn.Linear(model.fc.in_features, 10)`` leaves a layer where one was.
    """
    if any(module.calls_to(each) for each in HIDES_PARTS - {"setattr", "exec", "vars"}):
        return True
    for stmt in module.nodes(ast.Assign):
        for target in stmt.targets:
            if not isinstance(target, ast.Attribute | ast.Subscript):
                continue
            owner = target.value
            if isinstance(owner, ast.Name) and owner.id == "self":
                continue
            if isinstance(stmt.value, ast.Call) and module.dotted(stmt.value.func).startswith(
                "torch.nn."
            ):
                is_head = isinstance(target, ast.Attribute) and mentions(stmt.value, target.attr)
                if not is_head or module.last_name(stmt.value.func) != "Linear":
                    return True
    changed = [call.args[0] for call in module.calls_to("setattr") if call.args]
    return any(last_part(module.text(each)) == name for each in changed)
