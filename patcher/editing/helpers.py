"""The text of functions and classes that scripts may carry, cut out with ``ast`` and never run."""

from __future__ import annotations

import ast
import os
from functools import cache

from ..source.files import decode, read_bytes

PATCHER = os.path.dirname(os.path.dirname(__file__))
FILES = tuple(
    os.path.join(PATCHER, folder, "helper_code.py") for folder in ("editing", "capabilities")
)
STANDARD = ("functools", "importlib", "math", "os", "random", "shutil", "sys")
MODULES = (*STANDARD, "torch", "tree_sitter")  # that such code may need


@cache
def _texts() -> tuple[str, ...]:
    return tuple(decode(path, read_bytes(path)).text for path in FILES)


@cache
def _helpers() -> dict[str, str]:
    # ast.get_source_segment would split the text again for each of them.
    return {
        node.name: "".join(lines[node.lineno - 1 : node.end_lineno])
        for text in _texts()
        for lines in [text.splitlines(keepends=True)]
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }


@cache
def helper_names() -> frozenset[str]:
    """Names of all functions and classes that a patched script may carry."""
    # check asks for names alone, and soon.
    lines = (line for text in _texts() for line in text.splitlines())
    heads = (line.partition(" ") for line in lines if line.startswith(("def ", "class ")))
    return frozenset(name.partition("(")[0].rstrip(":") for _, _, name in heads)


def helper_code(name: str) -> str:
    """One helper's text, ending in a newline."""
    return _helpers()[name]


def helper_imports(name: str) -> list[str]:
    """Modules that the helper needs."""
    import re  # check has no use for it

    code = _helpers()[name]
    return [module for module in MODULES if re.search(rf"\b{module}\.", code)]
