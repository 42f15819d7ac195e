"""How a step asks whether micro-batches enough are accumulated: by the rest of their number."""

from __future__ import annotations

import ast

from ...source.tree import same_code
from ..language.conditions import comparison, plain_test
from .train_loops import TrainLoop


def is_modulo(loop: TrainLoop, test: ast.Compare) -> bool:
    """``… % n == 0`` or ``… % n == n - 1``, which hold for every batch where n is 1, or ``!=``."""
    remainder, kind, zero = comparison(test) or (None, None, None)
    return (
        isinstance(remainder, ast.BinOp)
        and isinstance(remainder.op, ast.Mod)
        and loop.accumulation is not None
        and same_code(remainder.right, loop.accumulation)
        and kind in (ast.Eq, ast.NotEq)
        and ((isinstance(zero, ast.Constant) and zero.value == 0) or asks_for_largest(loop, test))
    )


def asks_for_largest(loop: TrainLoop, test: ast.Compare) -> bool:
    """``… == accumulation - 1``."""
    match test.comparators[-1]:
        case ast.BinOp(left=left, op=ast.Sub(), right=ast.Constant(value=1)):
            return loop.accumulation is not None and same_code(left, loop.accumulation)
    return False


def asks_for_none_left(loop: TrainLoop, test: ast.If) -> bool:
    """``if not (step + 1) % n:``, which no end of an epoch passes by itself."""
    plain = plain_test(loop.module, test.test)[0]
    return isinstance(plain, ast.BinOp) and isinstance(plain.op, ast.Mod)
