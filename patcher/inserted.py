"""The text of the functions and classes in ``inserts.py``, cut out with ``ast`` and never run."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path


@cache
def _text() -> str:
    return Path(__file__).with_name("inserts.py").read_text("utf-8")


@cache
def _helpers() -> dict[str, str]:
    text = _text()
    return {
        node.name: f"{ast.get_source_segment(text, node)}\n"
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }


@cache
def helper_names() -> frozenset[str]:
    """Names of all functions and classes that a patched script may carry."""
    # check asks for names alone, and soon.
    return frozenset(re.findall(r"^(?:def|class) (\w+)", _text(), re.MULTILINE))


def helper_code(name: str) -> str:
    """One helper's text, ending in a newline."""
    return _helpers()[name]


def helper_imports(name: str) -> list[str]:
    """Modules that the helper needs."""
    code = _helpers()[name]
    return [module for module in ("os", "torch") if f"{module}." in code]
