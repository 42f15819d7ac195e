"""Helpers and imports that edits bring along, and where they go in a module."""

from __future__ import annotations

import ast
from collections import defaultdict

from .edits import Import
from .inserted import helper_code, helper_names
from .module import Module
from .rows import Rows, first_row, groups


def edit_helpers(name: str) -> list[str]:
    """A helper and the helpers it calls, callees first."""
    code = helper_code(name)
    needed = [other for other in sorted(helper_names()) if other != name and f"{other}(" in code]
    return [*dict.fromkeys(deeper for other in needed for deeper in edit_helpers(other)), name]


def import_lines(module: Module, wanted: list[Import]) -> list[str]:
    """The import statements that the module lacks."""
    lines: list[str] = []
    for item in wanted:
        if item.name:
            line = f"from {item.module} import {item.name}"
        elif module.aliases.get(item.module) == item.module and item.module in top_level(module):
            continue
        else:
            line = f"import {item.module}"
        if line not in lines:
            lines.append(line)
    return lines


def with_definitions(text: str, helpers: list[str], imports: list[str]) -> str:
    """The text with helpers before its first function or class, or behind its imports.

    Plain imports go behind the first plain one, others behind the last.
    """
    rows = Rows(text)
    newline = rows.newline.decode()
    body: list[tuple[int, ast.stmt | str]] = [
        (rows.last_row(line[-1]) + 1, line[0]) for line in groups(ast.parse(text).body)
    ]
    place = next(
        (n for n, (_, node) in enumerate(body) if isinstance(node, ast.FunctionDef | ast.ClassDef)),
        max((n + 1 for n, (_, node) in enumerate(body) if is_import(node)), default=0),
    )
    at = first_row(body[0][1]) if body and isinstance(body[0][1], ast.stmt) else len(rows.texts)
    body[place:place] = [(0, newline * 2 + helper) for helper in helpers]
    for line in imports:
        places = [n for n, (_, node) in enumerate(body) if is_import(node)]
        plain = [n for n in places if is_import(body[n][1], "import ")]
        is_plain = line.startswith("import ")
        anchors = plain if is_plain and plain else places
        index = (anchors[0] if is_plain else anchors[-1]) + 1 if anchors else 0
        body.insert(index, (0, line + newline))
    added: dict[int, bytes] = defaultdict(bytes)
    for end, node in body:
        at = end or at
        added[at] += node.encode() if isinstance(node, str) else b""
    parts = (part for row, old in enumerate(rows.texts) for part in (added[row], old))
    return b"".join([*parts, added[len(rows.texts)]]).decode()


def top_level(module: Module) -> set[str]:
    """Names that plain imports bind at module level."""
    return {
        alias.asname or alias.name.partition(".")[0]
        for stmt in module.tree.body
        if isinstance(stmt, ast.Import)
        for alias in stmt.names
    }


def is_import(node: ast.stmt | str, *words: str) -> bool:
    """Whether a statement, or a line that is put in, is an import; a plain one for "import "."""
    if isinstance(node, str):
        return node.startswith(words or ("import ", "from "))
    return isinstance(node, ast.Import if words else (ast.Import, ast.ImportFrom))
