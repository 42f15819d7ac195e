"""Losses that bend a mean over the batch, such as its root: the mean of ranks' roots is another."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import Function, everywhere, within
from ..language.settled_tests import is_never_reached
from ..models.model_results import forward_of
from ..training.program import Program
from ..training.train_loops import TrainLoop, backward_calls
from .loss_reduction import SAME_VALUE, Reduction, is_weight, reduction_of
from .whole_batch_losses import is_of_each

BENDS = ("sqrt", "log", "log1p", "log10", "exp", "pow", "square", "abs", "rsqrt")
NORMS = ("norm", "dist", "vector_norm")
CHOSEN = ("max", "amax", "min", "amin", "median", "quantile")  # among all elements, to one
THROUGH = (*SAME_VALUE, "mean", "sum", "scale", "detach")
MAX_DEPTH = 12

Place = tuple[Module, ast.expr]


def bent_means(program: Program, loop: TrainLoop) -> Iterator[Place]:
    """The first place in each loss of a loop where a mean over the batch is no longer linear.

    ``torch.sqrt(mse(output, target))``, and ``(1 - torch.exp(-loss)) ** 2 * loss``. Or where one
    example is chosen, ``loss.max()``.
    """
    for module, call in backward_calls(program, loop):
        assert isinstance(call.func, ast.Attribute)
        found = next(bends(program, module, call.func.value, 0, set()), None)
        if found is not None:
            yield found


def bends(
    program: Program, module: Module, node: ast.expr, depth: int, seen: set[ast.AST]
) -> Iterator[Place]:
    """Where a value bends a mean that it is made of."""
    if depth > MAX_DEPTH or node in seen:
        return
    seen.add(node)
    parts: list[Place] = []
    match node:
        case ast.Name():
            parts = [(module, value) for value in module.alternatives(node, node)]
        case ast.UnaryOp(operand=inner) | ast.BinOp(left=inner, op=ast.Div()):
            parts = [(module, inner)]
        case ast.BinOp(left=base, op=ast.Pow()):
            if is_mean(program, module, base):
                yield module, node
            parts = [(module, base)]
        case ast.BinOp(left=left, right=right):
            parts = [(module, left), (module, right)]
        case ast.Call():
            argument = changed(module, node)
            name = module.last_name(node.func)
            if argument is not None and name in BENDS and is_mean(program, module, argument):
                yield module, node
            if name in NORMS and is_norm_of_difference(module, node):
                yield module, node
            if argument is not None and name in CHOSEN and is_of_examples(module, node, argument):
                yield module, node
            if argument is not None and name in (*BENDS, *THROUGH):
                parts = [(module, argument)]
            else:
                parts = results(program, module, node)
    for where, part in parts:
        yield from bends(program, where, part, depth + 1, seen)


def is_norm_of_difference(module: Module, call: ast.Call) -> bool:
    """``torch.norm(output - target)`` over the whole batch, and ``torch.dist`` of both."""
    if any(word.arg in ("dim", "axis") for word in call.keywords) or len(call.args) > 2:
        return False
    if module.last_name(call.func) == "dist":
        return len(call.args) == 2
    inner = changed(module, call)
    value = None if inner is None else module.definition(inner, inner) or inner
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Sub):
        return False
    return not any(is_weight(module, name) for name in everywhere(value, ast.Name))


def is_of_examples(module: Module, call: ast.Call, chosen: ast.expr) -> bool:
    """``loss.max()`` of what a loss of each example is bound to; not of a list's parts."""
    is_method = chosen not in call.args
    is_whole = not call.keywords and len(call.args) == (0 if is_method else 1)
    value = module.definition(chosen, chosen) or chosen
    return is_whole and is_of_each(value)


def changed(module: Module, call: ast.Call) -> ast.expr | None:
    """``x`` of ``torch.sqrt(x)`` and ``x.sqrt()``."""
    is_method = isinstance(call.func, ast.Attribute) and not module.dotted(call.func).startswith(
        ("torch.", "math.")
    )
    if is_method and isinstance(call.func, ast.Attribute):
        is_scale = call.func.attr == "scale" and call.args
        return call.args[0] if is_scale else call.func.value
    return call.args[0] if call.args else None


def results(program: Program, module: Module, call: ast.Call) -> list[Place]:
    """What a function of the program, or a loss's forward pass, returns first."""
    called: list[tuple[Module, Function]] = program.callees(module, call)
    if not called and (forward := forward_of(program, module, call.func)) is not None:
        called = [forward]
    return [
        (where, each.value.elts[0] if isinstance(each.value, ast.Tuple) else each.value)
        for where, function in called
        for each in within(function.body, ast.Return)
        if each.value is not None and not is_never_reached(program, where, each)
        if not isinstance(each.value, ast.Tuple) or each.value.elts
    ]


def is_mean(program: Program, module: Module, node: ast.expr) -> bool:
    """Whether a value is a mean or a sum over the batch, also with a constant added."""
    match node:
        case ast.UnaryOp(operand=inner):
            return is_mean(program, module, inner)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            sides = [each for each in (left, right) if not isinstance(each, ast.Constant)]
            return bool(sides) and any(is_mean(program, module, each) for each in sides)
        case ast.BinOp(left=ast.Constant(), op=ast.Div(), right=divisor):
            return is_mean(program, module, divisor)
    if any(is_weight(module, name) for name in everywhere(node, ast.Name)):
        return False
    return reduction_of(program, module, node) in (Reduction.MEAN, Reduction.SUM)
