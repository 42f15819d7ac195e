"""Which names a training step makes its losses of."""

from __future__ import annotations

import ast
from collections.abc import Set

from ...source.tree import argument_values
from ..language.name_flow import flows, names_in, reached, taking
from ..training.train_loops import TrainLoop, is_backward


def names_of_losses(
    loop: TrainLoop, body: list[ast.stmt] | None = None, others: Set[ast.expr] = frozenset()
) -> set[str]:
    """The names that a step makes its losses of: ``targets`` of ``wanted = targets[numbers]``.

    By what the step binds, or a block around it, but for some values.
    """
    losses = {name for call in loop.backwards for name in names_in(call)}
    return made_from(body or loop.steps.body, losses, others)


def names_gone_back_from(loop: TrainLoop) -> set[str]:
    """The names from which a step goes back, ``loss`` of ``loss.backward()``.

    Of a function that goes back, those that it gets.
    """
    losses: set[str] = set()
    for call in loop.backwards:
        if is_backward(call) and isinstance(call.func, ast.Attribute):
            losses |= names_in(call.func.value)
        else:
            losses = losses.union(*map(names_in, argument_values(call)))
    return losses


def made_from(
    body: list[ast.stmt], names: set[str], others: Set[ast.expr] = frozenset()
) -> set[str]:
    """The names, and those that a block makes them of; but for what it puts into a text.

    Of what they are as long as alone, they are not made.
    """
    pairs = (
        (taking(targets), contents(value))
        for targets, value in flows(body)
        if value not in others and not is_text(value)
    )
    return reached(pairs, names)


def contents(value: ast.expr) -> set[str]:
    """The names in a value, but for those of which it has the shape alone: all ranks' is one."""
    match value:
        case ast.Attribute(attr="shape" | "device" | "dtype"):
            return set()
        case ast.Call(func=ast.Attribute(attr="size" | "numel" | "dim") | ast.Name(id="len")):
            return set()
        case ast.Name() | ast.Attribute():
            return names_in(value)
    parts: list[ast.expr] = []
    for each in ast.iter_child_nodes(value):
        match each:
            case ast.expr():
                parts.append(each)
            case ast.keyword(value=part) | ast.comprehension(iter=part):
                parts.append(part)
    return set().union(*map(contents, parts))


def is_text(value: ast.expr) -> bool:
    """Whether a value is a text that is put together: ``output = "loss {}".format(losses)``."""
    match value:
        case ast.JoinedStr() | ast.Constant(value=str()):
            return True
        case ast.Call(func=ast.Attribute(value=owner, attr="format")):
            return is_text(owner)
        case ast.BinOp(left=left, right=right):
            return is_text(left) or is_text(right)
    return False
