"""The text of the functions and classes in ``inserts.py``, cut out with ``ast`` and never run."""

from __future__ import annotations

import ast
from functools import cache
from importlib.resources import files


@cache
def _helpers() -> dict[str, str]:
    text = files(__package__).joinpath("inserts.py").read_text("utf-8")
    return {
        node.name: f"{ast.get_source_segment(text, node)}\n"
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }


def helper_names() -> frozenset[str]:
    """Names of all functions and classes that a patched script may carry."""
    return frozenset(_helpers())


def helper_code(name: str) -> str:
    """One helper's text, ending in a newline."""
    return _helpers()[name]


def helper_imports(name: str) -> list[str]:
    """Modules that the helper needs."""
    code = _helpers()[name]
    return [module for module in ("os", "torch") if f"{module}." in code]
