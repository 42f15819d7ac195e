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


FILE_ERRORS = {
    *("OSError", "IOError", "EnvironmentError", "FileNotFoundError", "FileExistsError", "Error"),
    *("error", "Exception", "BaseException"),
}


def survives_file_errors(node: ast.AST) -> bool:
    """Whether the program goes on where a place meets no file, or one that it did not expect."""
    return any(not raises(handler) for handler in handlers_of_file_errors(node))


def raises(handler: ast.ExceptHandler) -> bool:
    """Whether a handler ends with an error."""
    return isinstance(handler.body[-1], ast.Raise)


def raises_the_same(handler: ast.ExceptHandler) -> bool:
    """Whether a handler ends with the error that it has caught: ``raise``, or ``raise error``."""
    match handler.body[-1]:
        case ast.Raise(exc=None):
            return True
        case ast.Raise(exc=ast.Name(id=name)):
            return name == handler.name
    return False


def leaves_loop_on_file_errors(node: ast.AST) -> bool:
    """Whether an error of files at a place leads out of a loop: ``try`` is around that."""
    handlers = handlers_of_file_errors(node)
    around = [up for up in ancestors(node) if isinstance(up, ast.For | ast.While)]
    return bool(handlers and around) and not is_inside(handlers[0], around[0])


def handlers_of_file_errors(node: ast.AST) -> list[ast.ExceptHandler]:
    """Where the program goes on with an error of files of a place, the innermost first."""
    return [
        handler
        for up in ancestors(node)
        if isinstance(up, ast.Try) and any(is_in(node, stmt) for stmt in up.body)
        for handler in up.handlers
        if catches_file_errors(handler) and not raises_the_same(handler)
    ]


def catches_file_errors(handler: ast.ExceptHandler) -> bool:
    """Whether a handler is for errors of files: not one for KeyboardInterrupt."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = [
        kind.attr
        if isinstance(kind, ast.Attribute)
        else kind.id
        if isinstance(kind, ast.Name)
        else ""
        for kind in kinds
        if kind is not None
    ]
    return handler.type is None or not FILE_ERRORS.isdisjoint(names)


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
