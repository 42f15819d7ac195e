"""A file's path as text, the same text for the same file however it is put together."""

from __future__ import annotations

import ast

from ..source.module import Module
from ..source.tree import everywhere
from .program import Program

SAME = ("str", "Path", "fspath")  # calls that answer the path which they are passed


def text_of_path(program: Program, module: Module, path: ast.expr) -> str:
    """The text of a path, one for ``a + "/b"``, ``f"{a}/b"``, ``Path(a) / "b"`` and a join.

    What is not text is its source in braces, or ``<option>`` for an option of the parsed arguments,
    which they hold by any name.
    """
    return spelled(module, path, options_in(program, module, path))


def spelled(module: Module, path: ast.expr, options: list[ast.Attribute]) -> str:
    match path:
        case ast.Constant(value=str(text)):
            return text
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return spelled(module, left, options) + spelled(module, right, options)
        case ast.BinOp(op=ast.Div(), left=left, right=right):
            return joined(module, [left, right], options)
        case ast.JoinedStr(values=values):
            return "".join(spelled(module, each, options) for each in values)
        case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
            return spelled(module, value, options)
        case ast.Call(args=[_, *_] as parts) if module.dotted(path.func) == "os.path.join":
            return joined(module, parts, options)
        case ast.Call(args=[part], keywords=[]) if module.last_name(path.func) in SAME:
            return spelled(module, part, options)
    text = module.text(path)
    for node in options:
        text = text.replace(module.text(node), f"<{node.attr}>")
    return f"{{{' '.join(text.split())}}}"


def joined(module: Module, parts: list[ast.expr], options: list[ast.Attribute]) -> str:
    return "/".join(spelled(module, part, options).rstrip("/") for part in parts)


def options_in(program: Program, module: Module, path: ast.expr) -> list[ast.Attribute]:
    """The options in a path: ``args.folder``, ``self.args.folder``."""
    last_names = {name.rpartition(".")[2] for name in program.argument_names}
    return [
        node
        for node in everywhere(path, ast.Attribute)
        if node.attr in program.options and module.text(node.value).rpartition(".")[2] in last_names
    ]
