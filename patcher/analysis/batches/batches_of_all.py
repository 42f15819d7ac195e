"""Numbers of batches that are made of all examples, of which each rank takes its own part."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ....record import record
from ...source.module import Module
from ...source.tree import everywhere, is_inside, mentions, within
from ..training.constructed_loaders import Loader
from ..training.loaders import trace_loader
from ..training.only_values import have_one_origin, origin
from ..training.program import Program
from ..training.train_loops import TrainLoop
from .example_counts import counts_listed_cards, has_world_size, is_divided_later

ROUNDING = ("int", "float", "ceil", "floor", "round")
TOLD = re.compile("print|info|debug|warn|write|log|format|add_scalar|append", re.IGNORECASE)
QUOTIENTS = ast.FloorDiv | ast.Div | ast.Mod


@record
class BatchCount:
    """A number of batches of all examples, with the sizes of a batch to be multiplied by ranks."""

    module: Module
    at: ast.expr
    sizes: tuple[ast.expr, ...]


def batches_of_all(program: Program, loop: TrainLoop) -> Iterator[BatchCount]:
    """``len(data) / size`` of a loop's own data and batches, wherever the program divides them.

    Also rounded up, ``(len(data) + size - 1) // size``, times something, ``epochs * len(data) //
    size``, by ``divmod``, and asked of a step: ``(i + 1) * size >= len(data)``.
    """
    loader = loop.loader
    if loader is None or loader.dataset is None or loader.cycle is not None:
        return
    size = loader.batch_size
    if size is None or not loader.distributed_samplers or is_for_all_ranks(program, loader, size):
        return
    for module in program.modules:
        if not module.spells("len"):
            continue
        for at, counted, divisor in divisions(module):
            sizes = [each for each in (divisor,) if holds_size(program, loader, module, each)]
            if not sizes or not program.is_live(module, at):
                continue
            sizes += counted_up(program, loader, module, counted)
            if not is_of_data(program, loader, module, counted) or is_left(
                program, loop, module, at, divisor
            ):
                continue
            yield BatchCount(module, at, tuple(sizes))


def divisions(module: Module) -> Iterator[tuple[ast.expr, ast.expr, ast.expr]]:
    """What divides in a module, with what it divides by what."""
    for node in module.nodes(ast.BinOp):
        if isinstance(node.op, QUOTIENTS):
            yield node, node.left, node.right
        match node:  # (i + 1) * size / len(data), a part of an epoch
            case ast.BinOp(
                left=ast.BinOp(op=ast.Mult(), right=size), op=ast.Div(), right=ast.Call() as counted
            ):
                yield node, counted, size
    for call in module.calls_to("divmod"):
        if len(call.args) == 2:
            yield call, call.args[0], call.args[1]
    for test in module.nodes(ast.Compare):
        match test:
            case ast.Compare(ops=[ast.GtE() | ast.Lt()], comparators=[ast.Call() as counted]):
                if isinstance(test.left, ast.BinOp) and isinstance(test.left.op, ast.Mult):
                    yield test, counted, test.left.right


def is_for_all_ranks(program: Program, loader: Loader, size: ast.expr) -> bool:
    """Whether the size of a batch may be made of the number of ranks."""
    module, value = origin(program, loader.module, size)
    values = [(loader.module, size), (module, value)]
    if isinstance(value, ast.Attribute):
        for where in program.modules:
            values += [(where, each) for each in where.attribute_values.get(value.attr, [])]
        if any(changes(where, each, value.attr) for where, each in values):
            return True
    elif isinstance(value, ast.Name):
        stores = module.stores.get((module.function(value), value.id), ())
        bound = [module.statement(store) for store in stores]
        if len(bound) > 1 and any(
            isinstance(each, ast.AugAssign)
            or (isinstance(each, ast.Assign) and mentions(each.value, value.id))
            for each in bound
        ):
            return True
    return any(has_world_size(where, each) for where, each in values)


def changes(module: Module, value: ast.expr, name: str) -> bool:
    """Whether a size becomes another one, ``args.size = args.size // n_gpu``: which, of which?"""
    stmt = module.statement(value)
    is_bound = isinstance(stmt, ast.Assign) and stmt.value is value
    return (is_bound and mentions(value, name)) or any(
        isinstance(each.target, ast.Attribute) and each.target.attr == name
        for each in module.nodes(ast.AugAssign)
    )


def holds_size(program: Program, loader: Loader, module: Module, node: ast.expr) -> bool:
    """Whether a divisor is the size of the loader's batches, maybe times something."""
    if isinstance(node, ast.Call) and module.last_name(node.func) in ROUNDING and node.args:
        return holds_size(program, loader, module, node.args[0])
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return any(holds_size(program, loader, module, n) for n in (node.left, node.right))
    assert loader.batch_size is not None
    if is_asked_of(program, loader, module, node, "batch_size"):
        return True
    return have_one_origin(program, (module, node), (loader.module, loader.batch_size))


def is_asked_of(
    program: Program, loader: Loader, module: Module, node: ast.expr, attribute: str
) -> bool:
    """``loader.batch_size`` and ``loader.dataset``, by whatever name the loader has there."""
    if not isinstance(node, ast.Attribute) or node.attr != attribute:
        return False
    traced = trace_loader(program, module, node.value)
    return traced is not None and traced.call is loader.call


def is_of_data(program: Program, loader: Loader, module: Module, node: ast.expr) -> bool:
    """Whether a number is that of all examples of the loader, maybe times something, or rounded."""
    match node:
        case ast.UnaryOp(operand=inner):
            return is_of_data(program, loader, module, inner)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return any(is_of_data(program, loader, module, each) for each in (left, right))
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub()):
            return is_of_data(program, loader, module, left)
        case ast.Call(func=func, args=[first, *_]) if module.last_name(func) in ROUNDING:
            return is_of_data(program, loader, module, first)
        case ast.Call(func=ast.Name(id="len"), args=[data]):
            return is_data(program, loader, module, data)
        case ast.Name() | ast.Attribute():
            where, value = origin(program, module, node)
            return value is not node and is_of_data(program, loader, where, value)
    return False


def is_data(program: Program, loader: Loader, module: Module, data: ast.expr) -> bool:
    """Whether something is the data set of a loader."""
    assert loader.dataset is not None
    if is_asked_of(program, loader, module, data, "dataset"):
        return True
    return have_one_origin(program, (module, data), (loader.module, loader.dataset))


def counted_up(
    program: Program, loader: Loader, module: Module, counted: ast.expr
) -> list[ast.expr]:
    """The size that is added to round up, ``len(data) + size - 1``."""
    return [
        part
        for add in everywhere(counted, ast.BinOp)
        if isinstance(add.op, ast.Add)
        for part in ((add.right.left,) if isinstance(add.right, ast.BinOp) else (add.right,))
        if holds_size(program, loader, module, part)
    ]


def is_left(
    program: Program, loop: TrainLoop, module: Module, at: ast.expr, divisor: ast.expr
) -> bool:
    """Whether a number is another's: of ranks already, told alone, or what a sum is divided by."""
    stmt, parent = module.statement(at), module.parents[at]
    if has_world_size(module, at) or counts_listed_cards(module, at):
        return True
    if isinstance(stmt, ast.Assign) and (
        has_world_size(module, stmt.value)
        or counts_listed_cards(module, stmt.value)
        or (module is loop.module and is_divided_later(loop, stmt))
    ):
        return True
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Mult):
        other = parent.right if parent.left is at else parent.left
        if module.text(other) == module.text(divisor):  # the examples of whole batches
            return True
    if program.evaluation_of(module, at) is not None:
        return True
    return not any(counts(module, place) for place in places_read(module, stmt, at))


def places_read(module: Module, stmt: ast.stmt, at: ast.expr) -> list[ast.expr]:
    """Where the value of a statement is read: by the names that it binds, or else in itself."""
    if not isinstance(stmt, ast.Assign) or any(isinstance(t, ast.Subscript) for t in stmt.targets):
        return [at]
    function = module.function(stmt)
    names = {n.id for t in stmt.targets for n in everywhere(t, ast.Name)}
    attributes = {t.attr for t in stmt.targets if isinstance(t, ast.Attribute)}
    return [
        each
        for each in module.occurrences(*names, *attributes)
        if isinstance(each.ctx, ast.Load)
        and not is_inside(each, stmt)
        and (
            each.attr in attributes
            if isinstance(each, ast.Attribute)
            else function is None or is_inside(each, function)
        )
    ]


def counts(module: Module, place: ast.expr) -> bool:
    """Whether a number of batches decides something where it is read: not told, nor a divisor."""
    for up in module.ancestors(place):
        if isinstance(up, ast.BinOp) and is_mean(module, up, place):
            return False
        if isinstance(up, ast.Call) and TOLD.search(module.last_name(up.func)):
            return False
        if isinstance(up, ast.stmt):
            return True
    return True


def is_mean(module: Module, quotient: ast.BinOp, place: ast.expr) -> bool:
    """Whether a sum over batches is divided by what has a place in it."""
    by_place = isinstance(quotient.op, ast.Div) and holds(quotient.right, place)
    return by_place and is_sum(module, quotient.left)


def holds(node: ast.expr, place: ast.expr) -> bool:
    """Whether a place is an expression, or within it."""
    return place is node or is_inside(place, node)


def is_sum(module: Module, node: ast.expr) -> bool:
    """Whether something is a sum over batches, ``total += loss.item()``, and no number of steps."""
    names = {name.id for name in everywhere(node, ast.Name)}
    return any(
        isinstance(add.target, ast.Name)
        and add.target.id in names
        and not isinstance(add.value, ast.Constant)
        for add in within(module.scope_statements(node), ast.AugAssign)
    )
