"""Numbers and weights that a program makes of the first batch of its training data.

``x, _ = next(iter(loader))`` and ``mean = x.mean(0)``, or a loop that is left behind its first
batch.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ....record import record
from ...source.module import Module
from ...source.tree import Function, argument_values, everywhere, is_plain_call, precedes, within
from ..language.name_flow import taking
from ..training.loaders import trace_loader
from ..training.program import Program

STATISTICS = {
    *("mean", "std", "var", "std_mean", "var_mean", "median", "quantile", "percentile"),
    *("min", "max", "amin", "amax", "cov", "bincount", "average", "nanmean"),
}
SETTING_UP = re.compile(
    r"(^|_)(partial_fit|fit|init|initiali[sz]e|calibrate)(_|$)|data_dependent|data_init|^update_stat"
)
SHAPES = ("shape", "size", "dim", "ndim", "dtype", "device", "is_cuda")
TOLD = re.compile(r"print|info|debug|warn|log|writ|add_|plot|show|save|hist|assert", re.IGNORECASE)


@record
class FirstBatch:
    """Where a batch is taken, and what is made of it."""

    module: Module
    taken: ast.Call | ast.For  # next(iter(loader)), or a loop that is left in its first round
    made: ast.expr


def first_batches(program: Program) -> Iterator[FirstBatch]:
    """What a program makes of the first batch of a loader that deals a training its examples."""
    dealt = [each for each in program.training_loaders if each.distributed_samplers]
    if not dealt:
        return
    steps = {loop.steps for loop in program.train_loops}
    for module in program.modules:
        for taken, loader in batches_taken(module):
            if not steps.isdisjoint({taken, *module.ancestors(taken)}):
                continue
            if not program.is_live(module, taken):
                continue
            traced = trace_loader(program, module, loader)
            if traced is None or not any(each.is_same(traced) for each in dealt):
                continue
            made = made_of(module, taken)
            if made is not None:
                yield FirstBatch(module, taken, made)


def batches_taken(module: Module) -> Iterator[tuple[ast.Call | ast.For, ast.expr]]:
    """Where one batch is taken, and of which loader."""
    for call in module.calls_to("next"):
        match call:
            case ast.Call(
                func=ast.Name(), args=[ast.Call(func=ast.Name(id="iter"), args=[loader])]
            ):
                yield call, loader
    for leaving in module.nodes(ast.Break):
        loop = module.parents[leaving]
        if isinstance(loop, ast.For) and leaving is loop.body[-1]:
            yield loop, loop.iter


def made_of(module: Module, taken: ast.Call | ast.For) -> ast.expr | None:
    """What is made of a batch behind the place where it is taken: a statistic, or weights."""
    stmt = taken if isinstance(taken, ast.For) else module.statement(taken)
    if isinstance(taken, ast.For):
        names, body = taking([taken.target]), taken.body
    else:
        value = stmt.value if isinstance(stmt, ast.Assign | ast.Return) else None
        if value is not None and is_statistic(module, value, taken):
            is_kept = not isinstance(stmt, ast.Assign) or is_used(module, stmt)
            return value if is_kept else None
        names = taking(stmt.targets) if isinstance(stmt, ast.Assign) else set()
        block = module.body(stmt)
        body = block[block.index(stmt) + 1 :]
    names = set(names)
    for each in body:
        if isinstance(each, ast.For | ast.While) and rebinds(each, names):
            return None  # the training, whose batches have these names
        for assign in within([each], ast.Assign):
            if not reads(assign.value, names):
                continue
            if any(is_statistic(module, assign.value, name) for name in read(assign.value, names)):
                if is_used(module, assign):
                    return assign.value
            else:
                names |= taking(assign.targets)
        for result in within([each], ast.Return):
            if result.value is not None and any(
                is_statistic(module, result.value, name) for name in read(result.value, names)
            ):
                return result.value
        for call in within([each], ast.Call):
            last = module.last_name(call.func)
            if SETTING_UP.search(last) and any(
                reads(value, names) for value in argument_values(call)
            ):
                return call
    return None


def rebinds(loop: ast.For | ast.While, names: set[str]) -> bool:
    """Whether a loop gives names that a batch had to something of its own."""
    return isinstance(loop, ast.For) and bool(taking([loop.target]) & names)


def reads(node: ast.expr, names: set[str]) -> bool:
    """Whether an expression is made of what names hold, and not of its shape alone."""
    return any(True for _ in read(node, names))


def read(node: ast.AST, names: set[str]) -> Iterator[ast.Name]:
    """Where an expression reads more of what names hold than a shape: ``x.mean(0)``."""
    if (isinstance(node, ast.Attribute) and node.attr in SHAPES) or is_plain_call(node, "len"):
        return
    if isinstance(node, ast.Name) and node.id in names:
        yield node
    for child in ast.iter_child_nodes(node):
        yield from read(child, names)


def is_statistic(module: Module, value: ast.expr, part: ast.expr) -> bool:
    """Whether a call around a part of an expression makes one number of many: ``x.mean(0)``."""
    below: ast.AST = part
    while below is not value:
        below = module.parents[below]
        if isinstance(below, ast.Call) and module.last_name(below.func) in STATISTICS:
            return True
    return False


def is_used(module: Module, stmt: ast.Assign) -> bool:
    """Whether more is done with what a statement binds than that it is told."""
    names = taking(stmt.targets)
    if any(everywhere(target, ast.Attribute) for target in stmt.targets):
        return True  # an object has it, or a model
    function: Function | None = module.function(stmt)
    return any(
        isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Load)
        and module.function(node) is function
        and precedes(stmt, node)
        and not is_told(module, node)
        for node in module.occurrences(*names)
    )


def is_told(module: Module, node: ast.AST) -> bool:
    """Whether a statement only tells a value: ``print("mean", mean)``."""
    stmt = module.statement(node)
    calls = everywhere(stmt, ast.Call) if isinstance(stmt, ast.Expr) else []
    return any(TOLD.search(module.last_name(call.func)) for call in calls)
