"""What the call of a model runs, and which of its results a name is bound to."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import Function, is_inside
from ..language.objects import attribute_values, class_of, method_of
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
    owner = class_of(program, module, model)
    if owner is not None:
        return method_of(program, owner, "forward")
    found = {
        each
        for where, value in _values(program, module, model)
        if (each := _forward(program, where, value, depth + 1)) is not None
    }
    return found.pop() if len(found) == 1 else None


def _values(program: Program, module: Module, model: ast.expr) -> list[Place]:
    """What a model's expression may stand for: what is wrapped, bound or passed."""
    match model:
        case ast.Call(args=[wrapped, *_]) if module.last_name(model.func) in WRAPPERS:
            return [(module, wrapped)]
        case ast.Attribute(value=ast.Name(id="self")):
            owner = module.enclosing_class(model)
            return [*attribute_values(program, (module, owner), model.attr)] if owner else []
        case ast.Name():
            return [*values_of(program, module, model)]
    return []


def unpacked_result(module: Module, name: ast.Name) -> tuple[ast.expr, int] | None:
    """In ``loss, logits = model(batch)`` the call and the place of ``loss``."""
    function = module.function(name)
    stores = module.stores.get((function, name.id), ())
    above = [
        each
        for each in stores
        if each.lineno <= name.lineno and not is_inside(name, module.statement(each))
    ]
    holder = module.parents[above[-1]] if above else None
    if not isinstance(holder, ast.Tuple) or not isinstance(module.parents[holder], ast.Assign):
        return None
    stmt = module.parents[holder]
    assert isinstance(stmt, ast.Assign)
    if any(isinstance(each, ast.Starred) for each in holder.elts):
        return None
    return stmt.value, holder.elts.index(above[-1])
