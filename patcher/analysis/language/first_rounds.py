"""Loops that go round at least once, as those over a tuple that is written out do."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import precedes, within

PASSED_ON = ("enumerate", "list", "reversed", "sorted", "tqdm", "tuple")
MAX_DEPTH = 4  # names and calls through which what a loop goes over is followed


def first_round_comes_to(module: Module, loop: ast.AST, node: ast.AST) -> bool:
    """Whether the first round of a loop is certain, and nothing in it goes round ``node``.

    ``for task, folder in zip((args.task,), (args.output_dir,))``.
    """
    if not isinstance(loop, ast.For) or not is_filled(module, loop.iter):
        return False
    leaving = [stmt for kind in (ast.Break, ast.Continue) for stmt in within(loop.body, kind)]
    return not any(precedes(stmt, node) for stmt in leaving)


def is_filled(module: Module, node: ast.expr, depth: int = 0) -> bool:
    """Whether what a loop goes over certainly has an element."""
    if depth > MAX_DEPTH:
        return False
    match node:
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return any(not isinstance(part, ast.Starred) for part in parts)
        case ast.IfExp(body=body, orelse=orelse):
            return is_filled(module, body, depth + 1) and is_filled(module, orelse, depth + 1)
        case ast.Call(func=func, args=[_, *_] as values):
            name = module.last_name(func)
            passed = values if name == "zip" else values[:1] if name in PASSED_ON else []
            return bool(passed) and all(is_filled(module, each, depth + 1) for each in passed)
        case ast.Name():
            values = module.alternatives(node, node)
            return bool(values) and all(is_filled(module, each, depth + 1) for each in values)
    return False
