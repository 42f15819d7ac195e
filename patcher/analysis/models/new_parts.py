"""Statements that put a new part into a model, which a wrapper from before does not know."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import argument_values, within, without_calls_of
from ..language.objects import class_of
from ..training.between_trainings import trainings_beside
from ..training.program import Program
from .wrapped_parts import has_parameters, is_model

PUTS = ("append", "insert", "extend", "add_module", "register_module", "register_parameter")
MOVES = ("to", "cuda", "cpu", "float", "half", "double", "train", "eval")
CONTAINERS = ("torch.nn.Sequential", "torch.nn.ModuleList", "torch.nn.Parameter")
MODEL = re.compile("model|net|backbone|encoder|classifier", re.IGNORECASE)
MAX_DEPTH = 3


def new_parts(program: Program) -> Iterator[tuple[Module, ast.stmt]]:
    """``model.head = nn.Linear(8, 9)`` and ``self.layers.append(…)``, outside of constructors."""
    for module in program.modules:
        for stmt in module.nodes(ast.Assign):
            target = stmt.targets[0]
            if (
                isinstance(target, ast.Attribute)
                and is_of_model(program, module, target.value)
                and makes_part(program, module, stmt.value)
            ):
                yield module, stmt
        for call in module.calls_to(*PUTS):
            owner = call.func.value if isinstance(call.func, ast.Attribute) else None
            if isinstance(owner, ast.Attribute) and module.last_name(call.func) in PUTS[:3]:
                owner = owner.value  # of self.layers
            if (
                owner is not None
                and is_of_model(program, module, owner)
                and any(makes_part(program, module, each) for each in argument_values(call))
            ):
                yield module, module.statement(call)


def is_of_model(program: Program, module: Module, owner: ast.expr) -> bool:
    """Whether an object is a model, that is made already."""
    while isinstance(owner, ast.Attribute) and owner.attr == "module":
        owner = owner.value
    function = module.function(owner)
    if isinstance(owner, ast.Name) and owner.id == "self":
        around = module.enclosing_class(owner)
        is_made = function is not None and function.name not in ("__init__", "forward")
        return is_made and around is not None and is_model(program, (module, around))
    if isinstance(owner, ast.Name) and is_made_here(program, module, owner):
        return False  # no wrapper has it yet
    found = class_of(program, module, owner)
    if found is not None:
        return is_model(program, found)
    return bool(MODEL.search(module.last_name(owner)))


def is_made_here(program: Program, module: Module, owner: ast.Name) -> bool:
    """Whether a function makes what a name in it stands for, and neither wraps nor trains."""
    function = module.function(owner)
    values = module.alternatives(owner, owner)
    if function is None or not all(isinstance(value, ast.Call) for value in values):
        return False
    trains = trainings_beside(program, module, owner) or any(
        module.function(loop.steps) is function for loop in program.train_loops
    )
    wraps = any(
        module.last_name(call.func) == "DistributedDataParallel"
        for call in within(function.body, ast.Call)
    )
    return bool(values) and not trains and not wraps


def makes_part(program: Program, module: Module, value: ast.expr, depth: int = 0) -> bool:
    """Whether a value is a layer or a parameter that is made for it."""
    value = without_calls_of(value, MOVES)
    if isinstance(value, ast.Name) and depth < MAX_DEPTH:
        made = module.definition(value, value)
        return made is not None and makes_part(program, module, made, depth + 1)
    if not isinstance(value, ast.Call):
        return False
    is_container = module.dotted(value.func) in CONTAINERS
    if is_container or has_parameters(program, module, value):
        return True
    return depth < MAX_DEPTH and any(
        makes_part(program, where, each.value, depth + 1)
        for where, function in program.callees(module, value)
        for each in within(function.body, ast.Return)
        if each.value is not None
    )
