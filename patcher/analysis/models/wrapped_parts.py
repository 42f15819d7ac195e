"""Models that wrap one of their own parts, and leave the others without a wrapper."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import everywhere
from ..language.objects import ClassOf, class_of, classes_above
from ..training.program import Program
from .layer_tables import FIRST_OF_SEVERAL, LAYERS


def model_with_more_parts(program: Program, module: Module, wrap: ast.Call) -> str:
    """The class of a model that wraps one of its parts and has more of them with parameters.

    The empty string where there is none: a class that trains its parts itself is no such model.
    """
    owner = module.enclosing_class(wrap)
    if owner is None or not is_model(program, (module, owner)):
        return ""
    if any(module.last_name(call.func) == "backward" for call in everywhere(owner, ast.Call)):
        return ""
    return owner.name if parts_beside(program, module, owner, wrap) else ""


def is_model(program: Program, owner: ClassOf) -> bool:
    """Whether a class derives from torch.nn.Module, as far as its bases are read."""
    return any(
        module.dotted(base) in ("torch.nn.Module", "torch.nn.modules.Module")
        for module, definition in classes_above(program, owner)
        for base in definition.bases
    )


def parts_beside(program: Program, module: Module, owner: ast.ClassDef, wrap: ast.Call) -> set[str]:
    """Attributes of a model that hold layers, other than what a method of it wraps."""
    stmt = module.statement(wrap)
    targets = stmt.targets if isinstance(stmt, ast.Assign) else []
    wrapped = {target.attr for target in targets if isinstance(target, ast.Attribute)}
    return {
        target.attr
        for assign in everywhere(owner, ast.Assign)
        for target in assign.targets
        if isinstance(target, ast.Attribute) and target.attr not in wrapped
        if any(has_parameters(program, module, call) for call in everywhere(assign.value, ast.Call))
    }


def has_parameters(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether a call makes a layer of torch.nn, or a model of the program."""
    name = module.dotted(call.func)
    if name.startswith("torch.nn."):
        return module.last_name(call.func) in LAYERS | FIRST_OF_SEVERAL
    made = class_of(program, module, call)
    return made is not None and is_model(program, made)
