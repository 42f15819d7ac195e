"""Add helpers and imports at the top of a module."""

from __future__ import annotations

import ast
import re

import libcst as cst

from ..source.module import Module
from .edits import Import
from .helpers import helper_code
from .libcst_editor import Statement, parse_snippet
from .regions import first_line, has_own_line, indentation, newline

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def add_helpers_and_imports(
    text: str, module: Module, helpers: list[str], imports: list[Import]
) -> str:
    """Add helpers and missing imports to ``text``, the already edited text of ``module``."""
    lines = text.encode().splitlines(keepends=True)
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return text  # the engine's next round reports the error
    cut = end_of_top(lines, tree.body)
    rest = first_line(tree.body[cut]) - 1 if cut < len(tree.body) else len(lines)
    end = newline(lines)
    below = f"def below(): pass{end}" if rest < len(lines) else ""
    top = cst.parse_module(b"".join(lines[:rest]).decode() + below)
    top = top.with_changes(default_indent=indentation(lines, tree), default_newline=end)
    top = with_imports(with_helpers(top, helpers), module, imports)
    return top.code.removesuffix(below) + b"".join(lines[rest:]).decode()


def end_of_top(lines: list[bytes], body: list[ast.stmt]) -> int:
    """How many statements come before the first function or class and up to the last import."""
    definitions = (i for i, stmt in enumerate(body) if isinstance(stmt, DEFINITIONS))
    imports = [i for i, stmt in enumerate(body) if isinstance(stmt, ast.Import | ast.ImportFrom)]
    cut = max(next(definitions, len(body)), *(i + 1 for i in imports), 1)
    while cut < len(body) and not has_own_line(lines, body[cut]):
        cut += 1
    return cut


def called_before(text: str, names: set[str]) -> set[str]:
    """Which of these helpers a statement above their definitions calls when it runs.

    An edit of an earlier round has put them before the first function; another calls them now.
    """
    late: set[str] = set()
    called: set[str] = set()
    try:
        body = ast.parse(text).body if names else []
    except SyntaxError:
        return late  # the engine's next round reports the error
    for stmt in body:
        if isinstance(stmt, DEFINITIONS):
            if stmt.name in names & called and is_helper(stmt):
                late.add(stmt.name)
        else:
            code = ast.unparse(stmt)
            called |= {name for name in names if f"{name}(" in code}
    return late


def is_helper(stmt: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """Whether a definition is that of a helper, and not the script's own of this name."""
    return ast.dump(stmt) == ast.dump(ast.parse(helper_code(stmt.name)).body[0])


def without_definitions(text: str, names: set[str]) -> str:
    """The text without the functions and classes of these names, and the blank lines above."""
    lines = text.encode().splitlines(keepends=True)
    body = ast.parse(text).body if names else []
    for stmt, above in reversed([*zip(body[1:], body, strict=False)]):
        if isinstance(stmt, DEFINITIONS) and stmt.name in names:
            start = above.end_lineno or 0
            while lines[start].strip():  # a comment that belongs to what is above it
                start += 1
            del lines[start : stmt.end_lineno]
    return b"".join(lines).decode()


def with_helpers(tree: cst.Module, names: list[str]) -> cst.Module:
    """Insert helpers before the first function or class.

    They go after the imports where there is none, or a statement above it calls a helper.
    """
    if not names:
        return tree
    body = list(tree.body)
    definitions = (
        i for i, node in enumerate(body) if isinstance(node, cst.FunctionDef | cst.ClassDef)
    )
    place = next(definitions, len(body))
    calls = (i for i, node in enumerate(body[:place]) if calls_any(tree, node, names))
    first_call = next(calls, place)
    if first_call < place or place == len(body):
        imports = (i for i, node in enumerate(body[:first_call]) if is_import(node))
        place = max((i + 1 for i in imports), default=0)
    blank = cst.EmptyLine(indent=False)
    new: list[Statement] = []
    for name in names:
        code = helper_code(name).replace("\n", tree.default_newline)  # also of its docstring
        (helper,) = parse_snippet(code).body
        new.append(helper.with_changes(leading_lines=[blank, blank]))
    return tree.with_changes(body=[*body[:place], *new, *body[place:]])


def calls_any(tree: cst.Module, node: cst.CSTNode, names: list[str]) -> bool:
    """Whether a statement calls one of these functions, or passes it by keyword."""
    code = tree.code_for_node(node)
    return any(f"{name}(" in code or f"={name}" in code for name in names)


def with_imports(tree: cst.Module, module: Module, wanted: list[Import]) -> cst.Module:
    """Add missing imports after the first plain import, or ``from`` imports after the last."""
    lines: list[str] = []
    for item in wanted:
        if item.name:
            if any(
                stmt.module == item.module and alias.name == item.name and not alias.asname
                for stmt in module.tree.body
                if isinstance(stmt, ast.ImportFrom)
                for alias in stmt.names
            ):
                continue
            line = f"from {item.module} import {item.name}"
        elif module.aliases.get(item.module) == item.module and item.module in top_level(module):
            continue
        else:
            line = f"import {item.module}"
        if line not in lines:
            lines.append(line)
    if not lines:
        return tree
    body = list(tree.body)
    places = [i for i, node in enumerate(body) if is_import(node)]
    plain = [i for i in places if is_import(body[i], plain=True)]
    for line in lines:
        use = first_use(tree, body, line.split()[-1])
        places = [i for i in places if i < use] or places[:1]
        anchor = plain if line.startswith("import ") and plain else places
        at = (anchor[0] if line.startswith("import ") else anchor[-1]) + 1 if anchor else 0
        new = parse_snippet(f"{line}\n").body
        body[at:at] = new
        places = [i for i, node in enumerate(body) if is_import(node)]
        plain = [i for i in places if is_import(body[i], plain=True)]
    return tree.with_changes(body=body)


def first_use(tree: cst.Module, body: list[Statement], name: str) -> int:
    """The number of the first statement that reads a name when it runs, or how many there are."""
    for number, node in enumerate(body):
        is_run = not isinstance(node, cst.FunctionDef | cst.ClassDef) and not is_import(node)
        if is_run and re.search(rf"\b{re.escape(name)}\b", tree.code_for_node(node)):
            return number
    return len(body)


def top_level(module: Module) -> set[str]:
    """The names that plain imports bind at module level."""
    return {
        alias.asname or alias.name.partition(".")[0]
        for stmt in module.tree.body
        if isinstance(stmt, ast.Import)
        for alias in stmt.names
    }


def is_import(node: cst.CSTNode, plain: bool = False) -> bool:
    """Whether a statement is an import; with ``plain``, not a ``from`` import."""
    kinds = cst.Import if plain else (cst.Import, cst.ImportFrom)
    return isinstance(node, cst.SimpleStatementLine) and isinstance(node.body[0], kinds)
