"""What the call of a model runs, and which of its results a name is bound to."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import Function, argument
from ..language.objects import ClassOf, attribute_values, class_of, method_of, named_definition
from ..training.possible_values import Place, values_of
from ..training.program import Program

MAX_DEPTH = 8
WRAPPERS = ("DataParallel", "DistributedDataParallel", "over_ranks")


def forward_of(program: Program, module: Module, model: ast.expr) -> tuple[Module, Function] | None:
    """The forward pass of a model, wrapped or not, whose class the program has; else None."""
    return _forward(program, module, model, 0)


def _forward(
    program: Program, module: Module, model: ast.expr, depth: int
) -> tuple[Module, Function] | None:
    if depth > MAX_DEPTH:
        return None
    owner = class_of(program, module, model) or _class_loaded(program, module, model)
    if owner is not None:
        return method_of(program, owner, "forward")
    found = {
        each
        for where, value in _values(program, module, model)
        if (each := _forward(program, where, value, depth + 1)) is not None
    }
    return found.pop() if len(found) == 1 else None


def _class_loaded(program: Program, module: Module, model: ast.expr) -> ClassOf | None:
    """The class of the program that ``Tagger.from_pretrained(path)`` makes a model of."""
    match model:
        case ast.Call(func=ast.Attribute(value=named, attr="from_pretrained")):
            match named_definition(program, module, named):
                case where, ast.ClassDef() as owner:
                    return where, owner
    return None


def _values(program: Program, module: Module, model: ast.expr) -> list[Place]:
    """What a model's expression may stand for: what is wrapped, bound or passed."""
    match model:
        case ast.Call() if module.last_name(model.func) in WRAPPERS:
            wrapped = argument(model, 0, "module")
            return [] if wrapped is None else [(module, wrapped)]
        case ast.Attribute(value=ast.Name(id="self")):
            owner = module.enclosing_class(model)
            return [*attribute_values(program, (module, owner), model.attr)] if owner else []
        case ast.Name():
            return [*values_of(program, module, model)]
    return []
