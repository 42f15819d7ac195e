"""Losses that a script divides by a count which it takes of a rank's own batch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..analysis.batches.class_weights import passed
from ..analysis.batches.loss_reduction import LOSS
from ..analysis.training.program import Program
from ..source.module import Module
from ..source.tree import everywhere, is_inside, parameters
from .masked_means import GUARDS, is_of_loss, is_score, is_small, summed, without_casts

MAX_DEPTH = 4
OF_LOSS = re.compile("loss|criteri|focal|tversky|smooth", re.IGNORECASE)
TARGETS = re.compile("target|label|gt|truth|mask", re.IGNORECASE)


def sums_by_own_counts(
    program: Program, module: Module
) -> Iterator[tuple[ast.BinOp | ast.AugAssign, ast.expr]]:
    """``total / lengths.sum()`` and ``total / norm`` of a loss, each with what counts.

    The count may be a parameter, of which all calls pass such a sum.
    """
    if not module.calls_to("sum") and not module.spells("loss"):
        return
    quotients: list[tuple[ast.BinOp | ast.AugAssign, ast.expr]] = [
        (node, node.right) for node in module.nodes(ast.BinOp) if isinstance(node.op, ast.Div)
    ]
    quotients += [
        (stmt, stmt.value) for stmt in module.nodes(ast.AugAssign) if isinstance(stmt.op, ast.Div)
    ]
    for node, divisor in quotients:
        if is_of_losses(program, module, node) and not is_score(module, node):
            count = own_count(program, module, divisor)
            if count is not None:
                yield node, count


def is_of_losses(program: Program, module: Module, node: ast.BinOp | ast.AugAssign) -> bool:
    """Whether a quotient is a loss, or what a function returns of which callers make one."""
    function = module.function(node)
    divided = node.left if isinstance(node, ast.BinOp) else node.target
    names = {name.id for name in everywhere(divided, ast.Name)}
    if is_of_loss(module, node) or any(map(LOSS.search, names)):
        return True
    if function is None or not any(map(TARGETS.search, parameters(function))):
        return False
    if function.name == "forward":
        owner = module.enclosing_class(node)
        return owner is not None and OF_LOSS.search(owner.name) is not None
    callers = program.callers(function)
    return bool(callers) and any(is_of_loss(where, call) for where, call in callers)


def own_count(program: Program, module: Module, node: ast.expr, depth: int = 0) -> ast.expr | None:
    """The sum over a batch that a divisor is: of tokens, lengths, or positive examples."""
    node = without_casts(node)
    if depth > MAX_DEPTH:
        return None
    match node:
        case ast.Name():
            values = module.alternatives(node, node)
            function = module.function(node)
            if values:
                places = [(module, value) for value in values]
            elif function is not None and node.id in parameters(function):
                places = passed(program, module, function, node.id)
            else:
                return None
            found = [own_count(program, *place, depth + 1) for place in places]
            return node if found and None not in found else None
        case ast.Attribute(value=owner, attr="data"):
            return own_count(program, module, owner, depth)
        case ast.BinOp(left=owner, op=ast.Add(), right=added) if is_small(module, added):
            return own_count(program, module, owner, depth)
        case ast.Call(func=func, args=parts):
            if isinstance(func, ast.Attribute) and not module.dotted(func).startswith("torch."):
                parts = [func.value]
            if module.last_name(func) in GUARDS:
                counts = (own_count(program, module, each, depth) for each in parts)
                return next((count for count in counts if count is not None), None)
            inner = summed(module, node)
            return node if inner is not None and is_of_step(program, module, inner) else None
    return None


def is_of_step(program: Program, module: Module, node: ast.expr, depth: int = 0) -> bool:
    """Whether a tensor comes with the batch: bound in a training step, or passed to a function."""
    function = module.function(node)
    for name in everywhere(node, ast.Name):
        if name.id == "self" or depth > MAX_DEPTH:
            continue
        if function is not None and name.id in parameters(function):
            return True
        stores = module.stores.get((function, name.id), ())
        if any(
            loop.module is module and is_inside(store, loop.steps)
            for loop in program.train_loops
            for store in stores
        ):
            return True
        values = module.alternatives(name, name)
        if any(is_of_step(program, module, value, depth + 1) for value in values):
            return True
    return False
