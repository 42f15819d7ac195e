"""Numbers of a whole batch by which a step scales its examples: each rank has those of its part."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import (
    Function,
    argument,
    bound_names,
    everywhere,
    is_inside,
    mentions,
    same_code,
    within,
)
from ..training.train_loops import TrainLoop
from .loss_names import names_of_losses

MOMENTS = ("mean", "sum")
SPREADS = ("std", "var")
EXTREMES = ("max", "min", "amax", "amin", "sum", "norm")
COUNTS = ("bincount", "histc")


def scales_of_batch(loop: TrainLoop) -> Iterator[tuple[ast.expr, str]]:
    """``r.std()``, ``each / each.max()`` and ``bincount(y)``, of which losses are made."""
    module = loop.module
    calls = [
        each for each in within(loop.steps.body, ast.Call) if of_whole(module, each) is not None
    ]
    of_losses = names_of_losses(loop) if calls else set()
    for call in calls:
        stmt = module.statement(call)
        if not of_losses & bound_names(stmt) or is_of_one_example(loop, call):
            continue
        name, text = module.last_name(call.func), module.text(call)[:60]
        if name in SPREADS:
            yield call, f"{text} is that of the whole batch"
        elif name in COUNTS:
            yield call, f"{text} counts in the whole batch"
        elif divides_its_own(module, call):
            yield call, f"{text} is of the whole batch, by which its examples are divided"


def weights_by_batch(module: Module, function: Function) -> Iterator[tuple[ast.expr, str]]:
    """``1 / share`` of ``share = marks.mean(0)``: what is rare in a batch weighs more.

    Also of each element, ``[1 / each for each in share]``.
    """
    for stmt in within(function.body, ast.Assign):
        match stmt:
            case ast.Assign(targets=[ast.Name(id=share)], value=ast.Call() as call) if (
                module.last_name(call.func) in MOMENTS and is_over_examples(module, call)
            ):
                names = {share}
                for part in within(function.body, ast.comprehension):
                    names |= bound_names(part.target) if mentions(part.iter, share) else set()
                if any(
                    isinstance(ratio.op, ast.Div)
                    and isinstance(ratio.left, ast.Constant)
                    and any(mentions(ratio.right, name) for name in names)
                    for ratio in within(function.body, ast.BinOp)
                ):
                    yield call, f"{module.text(call)[:60]}, of the whole batch, weighs its examples"


def is_over_examples(module: Module, call: ast.Call) -> bool:
    """``x.mean(0)``, ``x.sum(dim=0)``, ``torch.mean(x, dim=0)``."""
    is_function = module.dotted(call.func).startswith("torch.")
    axis = argument(call, int(is_function), "dim") or argument(call, int(is_function), "axis")
    return isinstance(axis, ast.Constant) and axis.value == 0 and axis.value is not False


def of_whole(module: Module, call: ast.Call) -> ast.expr | None:
    """``x`` of ``x.std()``, ``torch.max(x)`` and ``bincount(x, minlength=9)``; None for others."""
    name = module.last_name(call.func)
    is_function = module.dotted(call.func).startswith("torch.")
    if name in COUNTS and is_function and call.args:
        return call.args[0]
    if (
        name not in (*SPREADS, *EXTREMES)
        or call.keywords
        or not isinstance(call.func, ast.Attribute)
    ):
        return None
    if is_function:
        return call.args[0] if len(call.args) == 1 else None
    return None if call.args else call.func.value


def divides_its_own(module: Module, call: ast.Call) -> bool:
    """Whether elements of a tensor are divided by a number of them all: ``x / x.max()``."""
    whole = of_whole(module, call)
    for up in module.ancestors(call):
        if isinstance(up, ast.stmt) or whole is None:
            return False
        if isinstance(up, ast.BinOp) and isinstance(up.op, ast.Div) and is_inside(call, up):
            is_divisor = call is up.right or is_inside(call, up.right)
            return is_divisor and is_in_elements(up.left, whole)
    return False


def is_in_elements(node: ast.expr, whole: ast.expr) -> bool:
    """Whether a tensor's elements are in an expression, and no number that is made of it first."""
    match node:
        case ast.BinOp(left=left, right=right):
            return is_in_elements(left, whole) or is_in_elements(right, whole)
        case ast.Call(func=ast.Attribute(value=value, attr="detach" | "clone" | "float" | "exp")):
            return is_in_elements(value, whole)
    return same_code(node, whole)


def is_of_one_example(loop: TrainLoop, call: ast.Call) -> bool:
    """Whether a loop in the step, or a comprehension, may go over the examples of a batch."""
    around = loop.module.ancestors(call)
    inner = around[: around.index(loop.steps)]
    kinds = ast.For | ast.comprehension | ast.ListComp | ast.GeneratorExp
    return any(isinstance(up, kinds) for up in inner) or any(
        isinstance(each, ast.Subscript) for each in everywhere(call.func, ast.Subscript)
    )
