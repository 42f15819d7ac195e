"""Steps that call a model several times, each time for another of its parts."""

from __future__ import annotations

import ast

from ...source.branches import exclusive
from ...source.module import Module
from ...source.tree import precedes, within
from ..training.program import Program
from .wrapping import loops_that_step

Constants = frozenset[tuple[str, object]]


def called_for_parts(program: Program) -> tuple[Module, ast.Call] | None:
    """The call of a model in a step whose constant arguments differ from those of a call above.

    ``model(x, is_query=True)`` and ``model(y, is_query=False)`` before one backward pass.
    DistributedDataParallel looks for unused parameters in each call alone: those of the first are
    unused in the second.
    """
    for loop in loops_that_step(program):
        module = loop.module
        first: dict[str, ast.Call] = {}
        for call in within(loop.steps.body, ast.Call):
            told = constants_of(call)
            name = module.text(call.func)
            above = first.setdefault(name, call)
            if (
                told
                and above is not call
                and not name.startswith("torch.")
                and is_of_model(module, call, name)
                and differ(told, constants_of(above))
                and not exclusive(above, call)
                and not any(precedes(above, b) and precedes(b, call) for b in loop.backwards)
                and any(precedes(call, backward) for backward in loop.backwards)
            ):
                return module, call
    return None


def constants_of(call: ast.Call) -> Constants:
    """The arguments of a call that are True, False or a text, by their names or places."""
    named = [(word.arg or "", word.value) for word in call.keywords]
    placed = [(str(place), value) for place, value in enumerate(call.args)]
    return frozenset(
        (name, value.value)
        for name, value in (*named, *placed)
        if isinstance(value, ast.Constant) and isinstance(value.value, bool | str)
    )


def differ(some: Constants, others: Constants) -> bool:
    """Whether an argument of both has another value in each."""
    values = dict(others)
    return any(name in values and values[name] != value for name, value in some)


def is_of_model(module: Module, call: ast.Call, name: str) -> bool:
    """Whether what is called is a model: its ``parameters()`` or ``train()`` is called as well."""
    return any(
        isinstance(other.func, ast.Attribute) and module.text(other.func.value) == name
        for other in module.calls_to("parameters", "train", "zero_grad", "eval", "state_dict")
    )
