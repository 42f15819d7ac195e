"""Means of losses over rows that a step joins, as many as each of its examples happens to have."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..analysis.batches.loss_reduction import Reduction, reduction_of
from ..analysis.training.program import Program
from ..analysis.training.train_loops import TrainLoop
from ..source.module import Module
from ..source.tree import argument, is_empty_list, names_within, within
from .masked_means import is_of_loss, without_casts

JOINS = ("torch.cat", "torch.concat", "torch.concatenate")
OF_LISTS = (
    *("torch.tensor", "torch.as_tensor", "torch.from_numpy"),
    *("torch.LongTensor", "torch.FloatTensor", "torch.BoolTensor"),
)
MAX_NAMES = 3
LABELS = re.compile("label|target|^tags?$|^ys?$")


def means_over_joined_rows(program: Program, module: Module) -> Iterator[tuple[ast.Call, ast.expr]]:
    """``loss(scores, torch.cat([torch.tensor(row) for row in labels]))``, each with what is joined.

    Lists of Python in a batch are those of examples that have unequally many.
    """
    joins = module.calls_to("cat", "concat", "concatenate")
    for function in dict.fromkeys(module.function(join) for join in joins):
        if function is None:
            continue
        for call in within(function.body, ast.Call):
            if not call.args or not is_of_loss(module, call):
                continue
            for value in call.args:
                rows = joined_rows(module, value)
                if rows and reduction_of(program, module, call) is Reduction.MEAN:
                    yield call, rows
                    break


def rows_joined_by_collating(
    program: Program, loop: TrainLoop
) -> Iterator[tuple[Module, ast.Assign, ast.expr]]:
    """``labels = torch.cat(…)`` where a loader makes batches, with the lists that are joined.

    A loss is a mean over them, as far as the losses that go back are no sums.
    """
    loader = loop.loader
    collate = None if loader is None else argument(loader.call, 6, "collate_fn")
    if loader is None or collate is None or not loop.backwards:
        return
    losses = [each.func.value for each in loop.backwards if isinstance(each.func, ast.Attribute)]
    if any(reduction_of(program, loop.module, each) is Reduction.SUM for each in losses):
        return
    for where, function in program.functions_by_name.get(loader.module.last_name(collate), ()):
        for stmt in within(function.body, ast.Assign):
            target = stmt.targets[0]
            if isinstance(target, ast.Name) and LABELS.search(target.id):
                rows = joined_rows(where, stmt.value)
                if rows is not None:
                    yield where, stmt, rows


def joined_rows(module: Module, node: ast.expr, depth: int = 0) -> ast.expr | None:
    """What ``torch.cat`` joins to a value, where it is made of lists, one for each example."""
    node = without_casts(node)
    if isinstance(node, ast.Name) and depth < MAX_NAMES:
        value = module.definition(node, node)
        return joined_rows(module, value, depth + 1) if value is not None else None
    if not isinstance(node, ast.Call) or module.dotted(node.func) not in JOINS:
        return None
    dim = argument(node, 1, "dim", "axis")
    parts = argument(node, 0, "tensors")
    if parts is None or not (dim is None or (isinstance(dim, ast.Constant) and dim.value == 0)):
        return None
    return parts if is_of_lists(module, parts) else None


def is_of_lists(module: Module, parts: ast.expr) -> bool:
    """``[torch.tensor(row) for row in labels]``, or a list that a loop fills so."""
    if isinstance(parts, ast.Name):
        made = module.definition(parts, parts)
        if made is None or is_empty_list(made):
            return any(
                isinstance(loop, ast.For) and is_tensor_of(module, call.args[0], loop.target)
                for call in module.calls_to("append")
                if isinstance(call.func, ast.Attribute)
                and isinstance(call.func.value, ast.Name)
                and call.func.value.id == parts.id
                and len(call.args) == 1
                and module.function(call) is module.function(parts)
                for loop in module.ancestors(call)
            )
        parts = made
    return (
        isinstance(parts, ast.ListComp | ast.GeneratorExp)
        and len(parts.generators) == 1
        and is_tensor_of(module, parts.elt, parts.generators[0].target)
    )


def is_tensor_of(module: Module, value: ast.expr, target: ast.expr) -> bool:
    """Whether a tensor is made of a list that a loop goes to: ``torch.tensor(row)``."""
    value = without_casts(value)
    if not isinstance(value, ast.Call) or not isinstance(target, ast.Name) or not value.args:
        return False
    is_made = module.dotted(value.func) in OF_LISTS
    first = value.args[0]
    return is_made and isinstance(first, ast.Name) and bool(names_within(first, {target.id}))
