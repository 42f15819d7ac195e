"""Gradients that a rank changes in a way of its own: by its batch, or before ranks average."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import Function, bound_names, everywhere, mentions, within
from ..language.name_flow import names_in, spread
from ..training.program import Program
from ..training.train_loops import TrainLoop
from .loss_reduction import is_weight
from .steps_apart import names_of_batch, tainted_functions

SCALING = ("mul_", "div_", "multiply_", "divide_", "true_divide_")
LEAF = "requires_grad"
BENDING = (
    *("clamp", "clamp_", "clip", "clip_", "norm", "normalize"),
    *("sign", "sqrt", "tanh", "abs", "where"),
)


def scaled_by_own(
    program: Program, loop: TrainLoop
) -> Iterator[tuple[Module, ast.stmt | ast.expr, str]]:
    """``p.grad /= n`` of a number that a rank takes of its own batch, with that number's text.

    Behind the backward pass all ranks have the same gradients; from here on they have others.
    """
    if not any(module.attributes("grad") for module in program.modules):
        return
    of_batch = names_of_batch(loop) - {loop.step_name}  # a number counts steps, not examples
    bodies: list[tuple[Module, list[ast.stmt], frozenset[str]]] = [
        (loop.module, loop.steps.body, spread(loop.steps.body, of_batch).names)
    ]
    for function, names in tainted_functions(program, loop, of_batch).items():
        bodies.append((program.module_of(function), function.body, names))
    if any(
        "reduce" in module.last_name(call.func)
        for module, body, _ in bodies
        for call in within(body, ast.Call)
    ):
        return  # it may be a number of all ranks
    for module, body, names in bodies:
        for node, gradient, factor in scalings(body):
            if names_in(factor) & names and not is_of_leaf(body, names_in(gradient), names):
                yield module, node, module.text(factor)


def is_of_leaf(body: list[ast.stmt], owners: set[str], of_batch: frozenset[str]) -> bool:
    """Whether what has a gradient is a tensor of the step's own, as the noise of an attack is.

    It is made of the batch, or a block makes it one that asks for gradients:
    ``delta = torch.randn(x.shape).requires_grad_()``.
    """
    for stmt in within(body, ast.Assign):
        is_leaf = bool(names_in(stmt.value) & of_batch)
        is_leaf |= any(word.arg == LEAF for word in everywhere(stmt.value, ast.keyword))
        is_leaf |= mentions(stmt, LEAF) or mentions(stmt, f"{LEAF}_")
        if is_leaf and owners & bound_names(stmt):
            return True
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr == f"{LEAF}_"
        and owners & names_in(call.func.value)
        for call in within(body, ast.Call)
    )


def scalings(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt | ast.expr, ast.expr, ast.expr]]:
    """What multiplies or divides a gradient in a block, with the gradient and the factor."""
    for change in within(body, ast.AugAssign):
        if isinstance(change.op, ast.Mult | ast.Div) and is_gradient(change.target):
            yield change, change.target, change.value
    for call in within(body, ast.Call):
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr in SCALING and is_gradient(func.value):
            yield from ((call, func.value, value) for value in call.args[:1])
    for assign in within(body, ast.Assign):
        match assign:
            case ast.Assign(
                targets=[target], value=ast.BinOp(left=left, op=ast.Mult() | ast.Div(), right=right)
            ):
                if is_gradient(target) and is_gradient(left):
                    yield assign, target, right


def is_gradient(node: ast.expr) -> bool:
    """``p.grad`` and ``p.grad.data``."""
    if isinstance(node, ast.Attribute) and node.attr == "data":
        node = node.value
    return isinstance(node, ast.Attribute) and node.attr == "grad"


def bent_before_average(module: Module) -> Iterator[tuple[ast.Call, ast.expr]]:
    """``p.register_hook(lambda g: g.clamp(-1, 1))`` of a weight, with what changes the gradient.

    The hook runs on the gradient of a rank alone; that of a mean is another one, unless the hook is
    linear.
    """
    for call in module.calls_to("register_hook"):
        func = call.func
        if not isinstance(func, ast.Attribute) or not call.args:
            continue
        names = everywhere(func.value, ast.Name)
        if not names or not is_weight(module, names[0]):
            continue
        bend = next(bends(module, call.args[0]), None)
        if bend is not None:
            yield call, bend


def bends(module: Module, hook: ast.expr) -> Iterator[ast.expr]:
    """What a hook does to a gradient that is not linear."""
    body: ast.expr | Function | None = hook.body if isinstance(hook, ast.Lambda) else None
    if isinstance(hook, ast.Name):
        body = next((each for each in module.all_functions if each.name == hook.id), None)
    for each in everywhere(body, ast.Call) if body is not None else ():
        if module.last_name(each.func) in BENDING:
            yield each
