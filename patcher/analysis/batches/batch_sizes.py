"""How many examples a batch has, which all ranks' batches of one step have alike.

A DistributedSampler deals all ranks the same number. That holds for the first dimension of what the
loader gives, ``inputs.size(0)``, and for nothing that is computed of it.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from ...source.tree import bound_names, within
from ..language.name_flow import names_in
from ..training.train_loops import TrainLoop

# Methods that keep how many examples there are.
KEEPING = ("to", "cuda", "cpu", "float", "long", "half", "double", "detach", "contiguous")


def sizes_in(loop: TrainLoop, of_batch: set[str]) -> tuple[set[str], set[ast.AST]]:
    """The names of such sizes in a step, and the expressions that ask for one.

    ``of_batch`` are the names of the loader's batch. None for batches that no loader gives: those
    that ranks take in turns may be of any size.
    """
    if loop.loader is None:
        return set(), set()
    body = loop.steps.body
    parts = parts_of(body, of_batch)
    asked: set[ast.AST] = {
        node
        for kind in (ast.Call, ast.Subscript)
        for node in within(body, kind)
        if is_size(node, parts)
    }
    names = {
        name
        for assign in within(body, ast.Assign)
        for target in first_size(assign, parts, asked)
        for name in bound_names(target)
        if bindings(body, name) == 1
    }
    return names, asked


def parts_of(body: list[ast.stmt], of_batch: set[str]) -> set[str]:
    """The names of a batch and of what it is unpacked into, which nothing else is bound to."""
    parts = set(of_batch)
    kept = [*kept_wholes(body)]
    whole: list[ast.expr] = []
    for target, value in kept:
        if value.id in parts:
            whole.append(target)
            parts |= bound_names(target)
    return {
        name
        for name in parts
        if bindings(body, name) == sum(name in bound_names(target) for target in whole)
    }


def kept_wholes(body: list[ast.stmt]) -> Iterator[tuple[ast.expr, ast.Name]]:
    """What a name is bound to again as a whole: ``x, y = x.to(device), y.to(device)``."""
    for assign in within(body, ast.Assign):
        pairs: list[tuple[ast.expr, ast.expr]] = [(each, assign.value) for each in assign.targets]
        match assign:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                pairs = [*zip(targets, values, strict=False)]
        for target, value in pairs:
            inner: ast.expr = value
            while isinstance(inner, ast.Call):
                match inner:
                    case ast.Call(func=ast.Attribute(value=each, attr=name)) if name in KEEPING:
                        inner = each
                    case ast.Call(func=ast.Name(id="Variable"), args=[each, *_]):
                        inner = each
                    case _:
                        break
            if isinstance(inner, ast.Name):
                yield target, inner


def bindings(body: list[ast.stmt], name: str) -> int:
    """How often a block binds a name."""
    return sum(
        each.id == name and isinstance(each.ctx, ast.Store) for each in within(body, ast.Name)
    )


def is_size(node: ast.AST, parts: Collection[str]) -> bool:
    """``inputs.size(0)``, ``inputs.size()[0]``, ``inputs.shape[0]`` or ``len(inputs)``."""
    match node:
        case (
            ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="size"),
                args=[ast.Constant(value=0)],
            )
            | ast.Subscript(
                value=ast.Attribute(value=ast.Name(id=name), attr="shape"),
                slice=ast.Constant(value=0),
            )
            | ast.Subscript(
                value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="size"), args=[]),
                slice=ast.Constant(value=0),
            )
            | ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name)])
        ):
            return name in parts
    return False


def first_size(
    assign: ast.Assign, parts: Collection[str], asked: Collection[ast.AST]
) -> list[ast.expr]:
    """``n`` of ``n = len(inputs)`` and of ``n, c, h, w = inputs.shape``."""
    target = assign.targets[0]
    match assign.value:
        case (
            ast.Attribute(value=ast.Name(id=name), attr="shape")
            | ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="size"), args=[])
        ):
            return target.elts[:1] if name in parts and isinstance(target, ast.Tuple) else []
    return [target] if assign.value in asked else []


def names_beside(node: ast.AST, left_out: Collection[ast.AST]) -> set[str]:
    """The names in code, as ``names_in``, outside of some of its expressions."""
    if node in left_out:
        return set()
    if isinstance(node, ast.expr) and not any(part in left_out for part in ast.walk(node)):
        return names_in(node)
    return set().union(*(names_beside(child, left_out) for child in ast.iter_child_nodes(node)))
