"""Whether an evaluation leaves it to the wrapper of its model to move batches to the card."""

from __future__ import annotations

import ast
from collections.abc import Collection

from ...source.tree import everywhere, within
from ..language.name_flow import names_in
from .evaluations import Evaluation
from .program import Program

# Methods that leave a tensor on its device.
IN_PLACE = ("float", "double", "long", "half", "contiguous", "detach", "view", "reshape", "squeeze")


def wrapper_moves(program: Program, evaluation: Evaluation) -> bool:
    """Whether the model of a card gets what the loader gave: ``model(Variable(images))``.

    DataParallel and DistributedDataParallel move that to the card, and the module itself does not.
    """
    if evaluation.loader.held_in != "" or not program.calls_to("cuda", "to"):
        return False
    module, loop = evaluation.module, evaluation.loop
    given = {name.id for name in everywhere(loop.target, ast.Name)}
    for stmt in within(loop.body, ast.Assign):
        for target in stmt.targets:
            values = parts_of(target, stmt.value)
            kept = {name.id for name, value in values if is_given(value, given)}
            given = given - names_in(target) | kept
    moved = {
        arg.id
        for stmt in within(loop.body, ast.Expr)
        if isinstance(stmt.value, ast.Call)
        for arg in stmt.value.args
        if isinstance(arg, ast.Name)
    }  # move_to(card, batch)
    given -= moved
    return any(
        module.text(call.func) == evaluation.model
        and any(is_given(arg, given) for arg in call.args)
        for call in within(loop.body, ast.Call)
    )


def parts_of(target: ast.expr, value: ast.expr) -> list[tuple[ast.Name, ast.expr]]:
    """The plain names among an assignment's targets, each with what it gets."""
    if not isinstance(target, ast.Tuple | ast.List):
        return [(target, value)] if isinstance(target, ast.Name) else []
    values = [value] * len(target.elts)
    if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(values):
        values = value.elts
    return [
        (name, part)
        for name, part in zip(target.elts, values, strict=True)
        if isinstance(name, ast.Name)
    ]


def is_given(value: ast.expr, given: Collection[str]) -> bool:
    """Whether a value is on the device of a batch, or of a part of it, as the loader gave it."""
    match value:
        case ast.Name(id=name):
            return name in given
        case ast.Subscript(value=whole) | ast.Starred(value=whole):
            return is_given(whole, given)
        case ast.Call(func=ast.Attribute(value=whole, attr=method)) if method in IN_PLACE:
            return is_given(whole, given)
        case ast.Call(func=ast.Name(id="Variable") | ast.Attribute(attr="Variable"), args=[whole]):
            return is_given(whole, given)
    return False
