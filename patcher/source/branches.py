"""Places in the branches of a test, and what statements evaluate before their blocks."""

from __future__ import annotations

import ast

from .tree import ancestors, is_inside


def is_in(node: ast.AST, other: ast.AST) -> bool:
    """Whether a node is another one, or inside of it."""
    return node is other or is_inside(node, other)


def exclusive(first: ast.AST, second: ast.AST) -> bool:
    """Whether two places stand in different branches of one test, so that one run takes one."""
    for up in ancestors(first):
        if isinstance(up, ast.If) and is_inside(second, up):
            in_body = [any(is_in(node, stmt) for stmt in up.body) for node in (first, second)]
            in_else = [any(is_in(node, stmt) for stmt in up.orelse) for node in (first, second)]
            return (in_body[0] and in_else[1]) or (in_else[0] and in_body[1])
        if isinstance(up, ast.IfExp) and is_inside(second, up):
            return True
    return False


def heads(stmt: ast.stmt) -> list[ast.AST]:
    """What a compound statement evaluates before its blocks."""
    match stmt:
        case ast.For():
            return [stmt.iter]
        case ast.If() | ast.While():
            return [stmt.test]
        case ast.With():
            return [item.context_expr for item in stmt.items]
    return []
