"""What an expression counts: the examples of a loader's data set, its batches, or the ranks."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from ...source.module import Module
from ...source.tree import below, everywhere, is_within, precedes, same_code, within
from ..ranks.rank_reach import is_world_size
from ..training.loaders import trace_loader
from ..training.program import Program
from ..training.train_loops import TrainLoop


def is_count_of_data(loop: TrainLoop, node: ast.expr) -> bool:
    """``len(examples)``, maybe divided by how many make one, of what the data set is made of."""
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Div):
        node = node.left
    return (
        isinstance(node, ast.Call)
        and loop.module.dotted(node.func) == "len"
        and len(node.args) == 1
        and loop.module.text(node.args[0]) in sources_of_data(loop)
    )


def sources_of_data(loop: TrainLoop) -> set[str]:
    """The names that the loader's data set is made of, through assignments and loops that fill."""
    assert loop.loader is not None
    assert loop.loader.dataset is not None
    names = {name.id for name in everywhere(loop.loader.dataset, ast.Name)}
    makers: list[tuple[Sequence[ast.AST], ast.expr]] = [
        (stmt.targets, stmt.value)
        for stmt in within(loop.scope, ast.Assign)
        if not is_within(stmt, loop.steps)
    ]
    makers += [
        (stmt.body, stmt.iter) for stmt in within(loop.scope, ast.For) if stmt is not loop.steps
    ]
    for _ in makers:
        found = set(names)
        for made, source in makers:
            if any(name.id in names for part in made for name in everywhere(part, ast.Name)):
                found |= {name.id for name in everywhere(source, ast.Name)}
        if found == names:
            break
        names = found
    return names


def has_world_size(module: Module, node: ast.expr) -> bool:
    """Whether the number of processes is part of an expression, or of a name in it."""
    return any(
        is_world_size(module, inner)
        for part in below(node)
        if isinstance(part, ast.expr)
        for inner in below(resolve(module, part))
        if isinstance(inner, ast.expr)
    )


def counts_listed_cards(module: Module, node: ast.expr) -> bool:
    """Whether a number in an expression counts a list, ``n_gpu = len(args.cards)``, on ranks too.

    The list may have the cards of all ranks.
    """
    counted: list[tuple[str, list[ast.expr]]] = [
        (name.id, module.alternatives(name, name)) for name in everywhere(node, ast.Name)
    ]
    for part in everywhere(node, ast.Attribute):
        counted.append((part.attr, module.attribute_values.get(part.attr, [])))
    return any(
        re.search("gpu|card|device", name, re.I)
        and values
        and all(isinstance(v, ast.Call) and module.dotted(v.func) == "len" for v in values)
        for name, values in counted
    )


def is_dataset_length(loop: TrainLoop, node: ast.expr) -> bool:
    """``len(dataset)`` of the loop's loader, or ``len(loader.dataset)``."""
    assert loop.loader is not None
    assert loop.loader.dataset is not None
    return (
        isinstance(node, ast.Call)
        and loop.module.dotted(node.func) == "len"
        and len(node.args) == 1
        and (
            same_code(node.args[0], loop.loader.dataset)
            or is_of_loader(loop, node.args[0], "dataset")
        )
    )


def is_of_loader(loop: TrainLoop, node: ast.AST, attribute: str) -> bool:
    """Whether an expression is an attribute of the loop's loader: ``loader.batch_size``."""
    assert loop.loader is not None
    stmt = loop.loader.module.statement(loop.loader.call)
    targets = stmt.targets if isinstance(stmt, ast.Assign) else []
    names = {loop.loader.name, *map(loop.loader.module.text, targets)}
    return (
        isinstance(node, ast.Attribute)
        and node.attr == attribute
        and loop.module.text(node.value) in names
    )


def sizes_of_batches(loop: TrainLoop, quotient: ast.BinOp) -> list[ast.expr]:
    """The sizes of a batch in ``len(data) // size``, of the loop's data; none of anything else.

    Also where it is rounded up: ``(len(data) + size - 1) // size``, ``-(-len(data) // size)``, and
    ``if len(data) % size: steps += 1`` beside it.
    """
    module, size = loop.module, quotient.right
    if not isinstance(quotient.op, ast.FloorDiv | ast.Div):
        return []
    if not holds_batch_size(loop, resolve(module, size)):
        return []
    counted = quotient.left.operand if isinstance(quotient.left, ast.UnaryOp) else quotient.left
    sizes = [size]
    while isinstance(counted, ast.BinOp) and isinstance(counted.op, ast.Add | ast.Sub):
        added = counted.right
        if isinstance(added, ast.BinOp) and isinstance(added.op, ast.Sub):
            added = added.left
        if same_code(added, size):
            sizes.append(added)
        elif not isinstance(added, ast.Constant):
            return []
        counted = counted.left
    if not any(
        is_dataset_length(loop, each) or is_count_of_data(loop, each)
        for each in (counted, resolve(module, counted))
    ):
        return []
    tests = [test.test for test in within(module.scope_statements(quotient), ast.If) if adds(test)]
    return sizes + [
        node.right
        for part in (module.statement(quotient), *tests)
        for node in everywhere(part, ast.BinOp)
        if isinstance(node.op, ast.Mod)
        and same_code(node.left, counted)
        and same_code(node.right, size)
    ]


def adds(test: ast.If) -> bool:
    """Whether a test lets something be added: ``if rest: steps += 1``."""
    return any(isinstance(stmt, ast.AugAssign) for stmt in test.body)


def is_example_count(loop: TrainLoop, node: ast.expr) -> bool:
    """``len(dataset)``, or its product with the number of processes."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return is_dataset_length(loop, node.left) and is_world_size(loop.module, node.right)
    return is_dataset_length(loop, node)


def holds_batch_size(loop: TrainLoop, node: ast.expr) -> bool:
    """Whether the loader's batch size is part of ``node``."""
    assert loop.loader is not None
    size = loop.loader.batch_size
    sizes = [] if size is None else [size, resolve(loop.module, size)]
    if isinstance(size, ast.Name) and sizes[1] is size:  # the module's own
        value = loop.module.single_assignment(None, size.id)
        sizes += [] if value is None else [value]
    return any(
        is_of_loader(loop, part, "batch_size") or any(same_code(part, each) for each in sizes)
        for part in below(node)
    )


def resolve(module: Module, node: ast.expr) -> ast.expr:
    """The last value of a plain name; any other expression itself."""
    return (module.definition(node, node) or node) if isinstance(node, ast.Name) else node


def is_loader_length(program: Program, loop: TrainLoop, node: ast.expr) -> bool:
    """``len(loader)``, under any name of the loop's loader."""
    assert loop.loader is not None
    if not (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "len"
        and len(node.args) == 1
        and isinstance(node.args[0], ast.Name | ast.Attribute)
    ):
        return False
    if loop.module.text(node.args[0]) == loop.loader.name:
        return True
    loader = trace_loader(program, loop.module, node.args[0])
    return loader is not None and loader.call is loop.loader.call


def is_divided_later(loop: TrainLoop, stmt: ast.Assign) -> bool:
    """Whether the number of ranks comes in behind: ``if rank != -1: steps = steps // world_size``.

    Under the same name, or under one that it is passed on to.
    """
    module = loop.module
    names = {module.text(target) for target in stmt.targets}
    scope = module.scope_statements(stmt)
    later: list[ast.Assign | ast.AugAssign] = [
        each for each in within(scope, ast.Assign) if precedes(stmt, each)
    ]
    later += [each for each in within(scope, ast.AugAssign) if precedes(stmt, each)]
    passed_on = [
        ({part.id for part in everywhere(each.value, ast.Name)}, {*map(module.text, each.targets)})
        for each in later
        if isinstance(each, ast.Assign)
    ]
    known = 0
    while known < len(names):
        known = len(names)
        for read, bound in passed_on:
            names |= bound if read & names else set()
    return any(
        any(module.text(part) in names for part in below(each) if isinstance(part, ast.expr))
        and has_world_size(module, each.value)
        and not only_in_horizon(loop, each.value)
        for each in later
    )


def only_in_horizon(loop: TrainLoop, value: ast.expr) -> bool:
    """Whether the number of ranks is in another number of steps alone: ``rate(step / total)``."""
    module = loop.module
    parts = [part for part in below(value) if isinstance(part, ast.Name | ast.Attribute)]
    with_ranks = [part for part in parts if has_world_size(module, part)]
    return bool(with_ranks) and all(
        any(
            is_dataset_length(loop, each) or is_count_of_data(loop, each)
            for each in below(made)
            if isinstance(each, ast.expr)
        )
        for part in with_ranks
        for made in [resolve(module, part)]
    )
