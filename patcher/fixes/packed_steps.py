"""Losses that are a mean over the steps of packed sequences."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..analysis.batches.loss_reduction import Reduction, reduction_of
from ..analysis.training.program import Program
from ..source.module import Module
from ..source.tree import position, within
from .masked_means import is_of_loss, without_casts

PACK = "pack_padded_sequence"
MAX_NAMES = 3


def means_over_packed_steps(
    program: Program, module: Module
) -> Iterator[tuple[ast.Call, ast.expr]]:
    """``loss(scores, pack_padded_sequence(targets, lengths).data)``, each with that call."""
    packs = module.calls_to(PACK)
    for function in dict.fromkeys(module.function(pack) for pack in packs):
        body = module.tree.body if function is None else function.body
        for call in within(body, ast.Call):
            if not call.args or not is_of_loss(module, call):
                continue
            packing = next(filter(None, (packed(module, value) for value in call.args)), None)
            if packing is not None and reduction_of(program, module, call) is Reduction.MEAN:
                yield call, packing


def packed(module: Module, node: ast.expr, depth: int = 0) -> ast.Call | None:
    """The call that packs what a value is: ``pack(…).data``, ``pack(…)[0]``, also under a name."""
    node = without_casts(node)
    match node:
        case (
            ast.Attribute(value=ast.Call() as call, attr="data")
            | ast.Subscript(value=ast.Call() as call, slice=ast.Constant(value=0))
        ):
            return call if module.last_name(call.func) == PACK else None
        case ast.Name() if depth < MAX_NAMES:
            return packed_above(module, node, depth)
    return None


def packed_above(module: Module, name: ast.Name, depth: int) -> ast.Call | None:
    """The call that packs what a name was bound to last, also as in ``x, _ = pack(…)``."""
    stores = module.stores.get((module.function(name), name.id), ())
    above = [each for each in stores if position(each) < position(name)]
    if not above:
        return None
    store = max(above, key=position)
    up = module.parents[store]
    stmt = module.parents[up] if isinstance(up, ast.Tuple) and up.elts[0] is store else up
    if not isinstance(stmt, ast.Assign):
        return None
    value = stmt.value
    if stmt is up:
        return packed(module, value, depth + 1)
    is_pack = isinstance(value, ast.Call) and module.last_name(value.func) == PACK
    return value if is_pack and isinstance(value, ast.Call) else None
