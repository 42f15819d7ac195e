"""The helpers that patched scripts carry, read as text from the ``*helper_code.py`` files."""

from __future__ import annotations

import ast
import os
from functools import cache

from ..source.files import decode, read_bytes

PATCHER = os.path.dirname(os.path.dirname(__file__))
FILES = (
    os.path.join(PATCHER, "editing", "helper_code.py"),
    os.path.join(PATCHER, "capabilities", "helper_code.py"),
    os.path.join(PATCHER, "capabilities", "fsdp_helper_code.py"),
)
STANDARD = (
    *("contextlib", "csv", "functools", "importlib", "inspect", "io", "itertools", "json"),
    "math",
    "os",
    *("pickle", "random", "shutil", "sys"),
)
MODULES = (*STANDARD, "torch", "tree_sitter")  # that helpers may import


@cache
def _texts() -> tuple[str, ...]:
    return tuple(decode(path, read_bytes(path)).text for path in FILES)


def first_line(node: ast.FunctionDef | ast.ClassDef) -> int:
    """The line of a definition's first decorator, or of its head."""
    return min(each.lineno for each in (node, *node.decorator_list))


@cache
def _helpers() -> dict[str, str]:
    return {
        node.name: "".join(lines[first_line(node) - 1 : node.end_lineno])
        for text in _texts()
        for lines in [text.splitlines(keepends=True)]
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }


@cache
def helper_names() -> frozenset[str]:
    """The names of all helpers."""
    # Without parsing: ``check`` needs only the names.
    lines = (line for text in _texts() for line in text.splitlines())
    heads = (line.partition(" ") for line in lines if line.startswith(("def ", "class ")))
    return frozenset(name.partition("(")[0].rstrip(":") for _, _, name in heads)


def helper_code(name: str) -> str:
    """A helper's text, ending in a newline."""
    return _helpers()[name]


def helper_imports(name: str) -> list[str]:
    """The modules that a helper imports."""
    import re  # not needed by ``check``

    code = _helpers()[name]
    return [module for module in MODULES if re.search(rf"\b{module}\.", code)]
