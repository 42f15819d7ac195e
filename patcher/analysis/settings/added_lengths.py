"""Find sequences that are padded to the sum of two options: a text and what comes behind it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import within
from ..training.program import Program

SHAPED = ("zeros", "ones", "full", "empty")


def added_lengths(program: Program, dest: str) -> set[frozenset[str]]:
    """The sums of options, by the attributes they set, that rows of tokens are padded to.

    Each holds the option `dest`. A row is padded to ``n`` where ``n - len(tokens)`` is how much is
    missing, or where ``n`` is a size of an array.
    """
    return {
        options
        for module in program.modules
        for node in module.nodes(ast.BinOp)
        if isinstance(node.op, ast.Add) and program.is_live(module, node)
        for options in [_options(program, node)]
        if dest in options
        and len(options) > 1
        and any(_is_size(module, use) for use in _uses(module, node))
    }


def _options(program: Program, node: ast.expr) -> frozenset[str]:
    """The options that are added up, none where anything else is."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _options(program, node.left), _options(program, node.right)
        return left | right if left and right else frozenset()
    is_option = isinstance(node, ast.Attribute) and node.attr in program.options
    return frozenset([node.attr]) if is_option else frozenset()  # type: ignore[attr-defined]


def _uses(module: Module, node: ast.BinOp) -> Iterator[ast.expr]:
    """A sum, and the names that it is bound to in the same function."""
    yield node
    stmt, function = module.statement(node), module.function(node)
    if function is None or not isinstance(stmt, ast.Assign) or stmt.value is not node:
        return
    target = stmt.targets[0]
    for name in within(function.body, ast.Name):
        if isinstance(target, ast.Name) and name.id == target.id and name is not target:
            yield name


def _is_size(module: Module, node: ast.expr) -> bool:
    """Whether a value has lengths taken from it, or is a size of an array."""
    up = module.parents[node]
    while isinstance(up, ast.BinOp) and isinstance(up.op, ast.Sub) and up.left is node:
        if any(
            isinstance(call, ast.Call) and module.last_name(call.func) == "len"
            for call in ast.walk(up.right)
        ):
            return True
        node, up = up, module.parents[up]
    if isinstance(up, ast.Tuple):
        node, up = up, module.parents[up]
    return (
        isinstance(up, ast.Call)
        and module.last_name(up.func) in SHAPED
        and any(each is node for each in up.args)
    )
