"""The flags that a script declares, with their defaults, read from its text."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path


def declared_flags(script: Path) -> dict[str, object] | None:
    """Every ``add_argument("--flag", …)`` with its default where that is a constant.

    Those of the script and of the modules beside it that it imports; where there are none and
    ``sys.argv`` is read, the fields of their dataclasses. None where there are none of these
    either, as the script is not there, is no Python of today, or has its flags from somewhere else.
    """
    flags: dict[str, object] = {}
    tree = _tree(script)
    trees = [tree, *map(_tree, _beside(script, tree))]
    for one in trees:
        for node in ast.walk(one):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
                defaults = [_constant(one.value) for one in node.keywords if one.arg == "default"]
                for flag in map(_constant, node.args):
                    if isinstance(flag, str) and flag.startswith("--"):
                        flags[flag] = defaults[0] if defaults else None
    reads = any(getattr(node, "attr", "") == "argv" for one in trees for node in ast.walk(one))
    return flags or (_fields(trees) if reads else {}) or None


def _fields(trees: Iterable[ast.Module]) -> dict[str, object]:
    """The fields of dataclasses, as flags, with their defaults where these are constants."""
    return {
        f"--{field.target.id}": _constant(field.value) if field.value else None
        for tree in trees
        for owner in ast.walk(tree)
        if isinstance(owner, ast.ClassDef)
        and any("dataclass" in ast.unparse(each) for each in owner.decorator_list)
        for field in owner.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }


def _tree(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ast.Module([], [])


def _beside(script: Path, tree: ast.Module) -> list[Path]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return sorted(script.parent / f"{name.replace('.', '/')}.py" for name in names)


def _constant(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) else None
