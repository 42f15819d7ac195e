"""Calls that move or convert a model's weights, after which a wrapper no longer hears of them.

DistributedDataParallel hooks into the accumulation of each gradient when it wraps. Where a weight's
kind of number or device changes behind that, torch accumulates anew, without the hook: from then on
ranks train apart, and nothing warns. It is so also where the weight comes back.
"""

from __future__ import annotations

import ast

from ...source.module import Module

CONVERTING = ("half", "bfloat16", "double")
AWAY = "cpu"
RETURNING = ("to", "cuda", "float", "train", "eval", "requires_grad_", *CONVERTING, AWAY)


def converted_model(module: Module, call: ast.Call) -> str:
    """The text of the name that ``model.half()`` or ``model.eval().cpu()`` is called on; or empty.

    What moves to the CPU does it for a while only in a loop.
    """
    if not isinstance(call.func, ast.Attribute) or call.args:
        return ""
    is_repeated = any(isinstance(up, ast.For | ast.While) for up in module.ancestors(call))
    if call.func.attr not in CONVERTING and not (call.func.attr == AWAY and is_repeated):
        return ""
    owner: ast.expr = call.func.value
    while isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute):
        if owner.func.attr not in RETURNING:
            return ""
        owner = owner.func.value
    if isinstance(owner, ast.Attribute) and owner.attr == "module":
        owner = owner.value
    return module.text(owner) if isinstance(owner, ast.Name | ast.Attribute) else ""
