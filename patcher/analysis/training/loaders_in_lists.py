"""Loaders that a loop takes from a list, one after the other."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ....record import replace
from ...source.module import Module
from ...source.tree import bound_names, everywhere, parameters, within
from ..language.call_graph import CallGraph
from ..language.dictionaries import in_phase, key_that_trains
from ..language.listed import elements_of
from ..language.name_flow import names_in, spread
from ..language.passed_arguments import argument_for_parameter
from .constructed_loaders import Loader
from .loaders import trace_loader

STEPS = ("backward", "step", "zero_grad", "train", "eval")
MAX_DEPTH = 4  # names and calls between a loop and the list


def loaders_in_turn(graph: CallGraph, module: Module, loop: ast.For) -> Iterator[Loader]:
    """The loaders in the list that a loop goes over, also in one that callers pass."""
    for where, display in lists_of(graph, module, loop.iter):
        for element in (*everywhere(display, ast.Name), *everywhere(display, ast.Attribute)):
            loader = trace_loader(graph, where, element)
            if loader is not None:
                yield loader


def is_of_several(graph: CallGraph, module: Module, loop: ast.For) -> bool:
    """Whether a loop goes over one loader after the other of those that a loop around it takes.

    And steps with each: not in one phase alone.
    """
    names = names_in(loop.iter)
    if any(in_phase(module, name) for name in everywhere(loop.iter, ast.Name)):
        return False
    if any(key_that_trains(module, item) for item in everywhere(loop.iter, ast.Subscript)):
        return False
    return any(
        len({loader.call for loader in loaders_in_turn(graph, module, up)}) > 1
        for up in module.ancestors(loop)
        if isinstance(up, ast.For) and names & bound_names(up.target)
    )


def loop_of_turns(
    graph: CallGraph, module: Module, loop: ast.For, loader: Loader | None
) -> ast.For | None:
    """The loop around one that takes a list's loaders in turn, each of which is known.

    What tells one of them from the others may not decide whether a step is taken.
    """
    every = () if loader is None else (loader, *loader.others)
    if len({each.call for each in every}) < 2 or not is_of_several(graph, module, loop):
        return None
    names = names_in(loop.iter)
    for up in module.ancestors(loop):
        if isinstance(up, ast.For) and names & bound_names(up.target):
            found = {each.call for each in loaders_in_turn(graph, module, up)}
            is_known = found <= {each.call for each in every}
            return up if is_known and not steps_with_some(up, names_in(loop.iter)) else None
    return None


def steps_with_some(turns: ast.For, loaders: set[str]) -> bool:
    """Whether it hangs on which loader it is whether a loop steps with its batches.

    By its number or name, or what is made of them, or as ``loader is train_loader``.
    """
    own = bound_names(turns.target) - loaders
    for stmt in within(turns.body, ast.Assign):
        if compares(stmt.value, loaders):
            own |= bound_names(stmt)
    told = spread(turns.body, own).names
    for test in within(turns.body, ast.If):
        branches = [*test.body, *test.orelse]
        steps = any(
            isinstance(call.func, ast.Attribute) and call.func.attr in STEPS
            for call in within(branches, ast.Call)
        )
        leaves = any(within(branches, kind) for kind in (ast.Continue, ast.Break))
        is_told = compares(test.test, loaders) or bool(told & names_in(test.test))
        if is_told and (steps or leaves):
            return True
    return False


def compares(node: ast.expr, names: set[str]) -> bool:
    """Whether an expression compares what one of the names has, as ``loader is train_loader``."""
    return any(
        isinstance(side, ast.Name) and side.id in names
        for compare in everywhere(node, ast.Compare)
        for side in (compare.left, *compare.comparators)
    )


def listed_loaders(graph: CallGraph, module: Module, node: ast.expr) -> list[Loader]:
    """All loaders of a list or dictionary; none where an element may be something else."""
    found = [trace_loader(graph, *each) for each in elements_of(graph, module, node) or ()]
    loaders = [each for each in found if each is not None]
    is_plain = isinstance(node, ast.Name | ast.Attribute) or "values" in module.text(node)
    text = module.text(node) if is_plain else ""
    is_here = [each.name and each.scope is module.function(node) for each in loaders]
    if not all(is_here):
        loaders = [replace(each, name="", held_in=None, listed_in=text) for each in loaders]
    return loaders if len(loaders) == len(found) else []


def lists_of(
    graph: CallGraph, module: Module, node: ast.expr, depth: int = 0
) -> Iterator[tuple[Module, ast.expr]]:
    """The lists, tuples and dictionaries that an expression may go over, each with its module."""
    sources: list[tuple[Module, ast.expr]] = []
    match node:
        case ast.List() | ast.Tuple() | ast.Dict():
            yield module, node
        case ast.Call(func=ast.Attribute(value=owner, attr="items" | "values")):
            sources = [(module, owner)]
        case ast.Call(func=ast.Name()):  # zip(names, loaders)
            sources = [(module, each) for each in node.args]
        case ast.Name():
            sources = [(module, each) for each in module.alternatives(node, node)]
            function = module.function(node)
            if not sources and function is not None and node.id in parameters(function):
                for where, call in graph.callers(function):
                    passed = argument_for_parameter(module, function, call, node.id)
                    if passed is not None:
                        sources.append((where, passed))
    for where, source in sources if depth < MAX_DEPTH else ():
        yield from lists_of(graph, where, source, depth + 1)
