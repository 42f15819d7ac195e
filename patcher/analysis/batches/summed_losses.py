"""Losses that may be sums over a batch, where the functions that make them are read for it."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import Function, everywhere, is_inside, within
from ..language.settled_tests import is_never_reached
from ..training.program import Program
from ..training.train_loops import TrainLoop, backward_calls, loop_around
from .batch_origins import bound_value
from .batch_taint import NotDealtError
from .loss_reduction import LOSS, Reduction, reduction_of

MAX_DEPTH = 3
COMPARISONS = ("ne", "eq", "gt", "lt", "ge", "le")


def refuse_summed_losses(program: Program, loop: TrainLoop, *, even_if_divided: bool) -> None:
    """Raise where a loss may be a sum that the ranks' mean would divide by their number.

    A division beside the sum, or in the step, may make it a mean again.
    """
    for module, call in backward_calls(program, loop):
        assert isinstance(call.func, ast.Attribute)
        loss = call.func.value
        if reduction_of(program, module, loss) is not Reduction.UNKNOWN:
            continue  # DF312 multiplies sums
        for where, made in calls_behind(module, call, loss):
            place = sum_below(program, where, made, 0, set())
            if place is None:
                continue
            home, node = place
            if even_if_divided or not any(map(divides, (home.scope_statements(node), loop.steps))):
                raise NotDealtError(
                    "its loss may be a sum over a batch:"
                    f" line {node.lineno} of {home.source.path.name}"
                )


def divides(code: list[ast.stmt] | ast.AST) -> bool:
    operations: list[ast.BinOp | ast.AugAssign] = list(within(code, ast.BinOp))
    operations += within(code, ast.AugAssign)
    return any(isinstance(node.op, ast.Div) for node in operations)


def calls_behind(module: Module, call: ast.Call, loss: ast.expr) -> list[tuple[Module, ast.Call]]:
    """The calls that make a loss: in its expression, and in what its names are bound to."""
    found: list[tuple[Module, ast.Call]] = [(module, c) for c in everywhere(loss, ast.Call)]
    around = loop_around(module, call)
    function = module.function(loss)
    for name in everywhere(loss, ast.Name):
        scope = function if (function, name.id) in module.stores else None
        for store in module.stores.get((scope, name.id), []):
            value = bound_value(module, store)
            if value is not None and (around is None or is_inside(store, around)):
                found += [(module, each) for each in everywhere(value, ast.Call)]
    return found


def sum_below(
    program: Program, module: Module, call: ast.Call, depth: int, seen: set[Function]
) -> tuple[Module, ast.Call] | None:
    """A sum that becomes a loss, in the expression of a call or in a function that it runs."""
    if is_loss_sum(module, call):
        return module, call
    if depth > MAX_DEPTH:
        return None
    for where, function in [*program.callees(module, call), *forwards(program, module, call)]:
        if function in seen:
            continue
        seen.add(function)
        for inner in within(function.body, ast.Call):
            if is_loss_sum(where, inner) and not is_never_reached(program, where, inner):
                return where, inner
            found = sum_below(program, where, inner, depth + 1, seen)
            if found is not None:
                return found
    return None


def forwards(program: Program, module: Module, call: ast.Call) -> list[tuple[Module, Function]]:
    """The forward pass that ``model(batch)`` or ``self.part(batch)`` runs, of a class read."""
    found: list[tuple[Module, Function]] = []
    values: list[ast.expr] = []
    if isinstance(call.func, ast.Name):
        values = module.alternatives(call.func, call)
    elif isinstance(call.func, ast.Attribute):
        values = module.attribute_values.get(call.func.attr, [])
    for value in values:
        name = module.last_name(value.func) if isinstance(value, ast.Call) else ""
        found += [
            (where, each)
            for where in program.modules
            for owner in where.nodes(ast.ClassDef)
            if owner.name == name
            for each in owner.body
            if isinstance(each, ast.FunctionDef) and each.name == "forward"
        ]
    return found


def is_loss_sum(module: Module, call: ast.Call) -> bool:
    """Whether a call sums over all of its elements, for a value that is called a loss."""
    last = module.last_name(call.func)
    words = {word.arg: module.text(word.value).strip("\"'") for word in call.keywords}
    if words.get("reduction") == "sum" or words.get("size_average") == "False":
        return True
    is_method = isinstance(call.func, ast.Attribute) and module.dotted(call.func) != "torch.sum"
    if module.dotted(call.func) == "sum":
        return False  # of a list, such as the parts of a loss
    if last != "sum" or len(call.args) + len(call.keywords) != (0 if is_method else 1):
        return False
    summed = call.func.value if is_method and isinstance(call.func, ast.Attribute) else call.args[0]
    if isinstance(summed, ast.Compare) or (
        isinstance(summed, ast.Call) and module.last_name(summed.func) in COMPARISONS
    ):
        return False  # how many: tokens, by which a mean is weighed
    stmt = module.statement(call)
    if isinstance(stmt, ast.Assign | ast.AugAssign):
        targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
        return any(LOSS.search(module.text(target)) for target in targets)
    return isinstance(stmt, ast.Return)
