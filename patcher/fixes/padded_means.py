"""Means over all places of a padded batch, with those that a mask makes 0."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..analysis.language.names import answered_once
from ..analysis.training.program import Program
from ..source.module import Module
from ..source.tree import everywhere
from .masked_means import factors_behind, is_mask, is_of_loss, without_casts

MASK = re.compile("mask|non_?pad", re.IGNORECASE)
COLLATING = re.compile("collate|pad|batch", re.IGNORECASE)
LONGEST = (True, "longest")


def means_over_padding(program: Program, module: Module) -> Iterator[tuple[ast.Call, ast.expr]]:
    """``(losses * mask).mean()`` of batches padded to their longest, with the mask."""
    if not pads_to_longest(program):
        return
    for call in module.calls_to("mean"):
        whole = mean_of_all(module, call)
        mask = whole and mask_of(module, whole)
        if mask is not None and is_of_loss(module, call):
            yield call, mask


def mean_of_all(module: Module, call: ast.Call) -> ast.expr | None:
    """``x`` of ``x.mean()`` and ``torch.mean(x)``."""
    if call.keywords:
        return None
    if module.dotted(call.func) == "torch.mean":
        return call.args[0] if len(call.args) == 1 else None
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return None if call.args else owner


def mask_of(module: Module, losses: ast.expr) -> ast.expr | None:
    """The mask that losses are multiplied by: ``losses * mask``, also by ``losses *= mask``."""
    made = module.definition(losses, losses) or losses
    sides: list[ast.expr] = []
    if isinstance(made, ast.BinOp) and isinstance(made.op, ast.Mult):
        sides = [made.left, made.right]
    sides += factors_behind(module, losses)
    for side in map(without_casts, sides):
        name = side.attr if isinstance(side, ast.Attribute) else getattr(side, "id", "")
        if is_mask(module, side) or MASK.search(name):
            return side
    return None


@answered_once
def pads_to_longest(program: Program) -> bool:
    """Whether batches are as long as their longest example: ``pad_sequence``, ``padding=True``.

    And a function that makes batches with ``max(len(row) for row in rows)``.
    """
    return any(
        module.calls_to("pad_sequence")
        or any(
            word.arg == "padding"
            and isinstance(word.value, ast.Constant)
            and word.value.value in LONGEST
            for word in module.nodes(ast.keyword)
        )
        or any(
            COLLATING.search(getattr(module.function(call), "name", ""))
            and any(module.last_name(each.func) == "len" for each in everywhere(call, ast.Call))
            for call in module.calls_to("max")
        )
        for module in program.modules
    )
