"""Run a script as ``__main__`` from a module that is itself ``__main__``."""

from __future__ import annotations

import ast
import builtins
import io
import os
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType


def run_as_main(script: str) -> None:
    """Execute a script in a new, lasting ``__main__``, as the interpreter itself would.

    A script that imports from its package, ``from .models import Net``, is run as
    ``python -m package.script`` runs it. runpy differs: it changes sys.argv[0] or __file__, leaves
    no __loader__, and takes ``__main__`` away before the exit handlers run.
    """
    path = os.path.abspath(script)  # noqa: PTH100  (normalised, as the interpreter does)
    loader = SourceFileLoader("__main__", path)
    module = ModuleType("__main__")
    vars(module).update(__file__=path, __loader__=loader, __builtins__=builtins, __cached__=None)
    sys.modules["__main__"] = module
    with io.open_code(path) as file:
        data = file.read()
    code = loader.source_to_code(data, path)
    root, name = package_of(path, data)
    if name:
        package = name.rpartition(".")[0]
        spec = ModuleSpec(name, SourceFileLoader(name, path), origin=path)
        vars(module).update(__package__=package, __spec__=spec)
    if root and not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, root)
    exec(code, vars(module))


def package_of(path: str, data: bytes) -> tuple[str, str]:
    """The folder above the package that a script imports from, and the script's name as a module.

    The name is empty where it imports its package by its full name alone, ``from package.models
    import Net``, and both are where it knows of none.
    """
    imports = [node for node in ast.walk(ast.parse(data)) if isinstance(node, ast.ImportFrom)]
    folder = Path(path).parent
    depth = max((node.level for node in imports), default=0)
    parts = [Path(path).stem]
    if depth:
        while depth > 0 or (folder / "__init__.py").is_file():
            parts.insert(0, folder.name)
            folder, depth = folder.parent, depth - 1
        is_name = all("." not in part for part in parts)
        return (str(folder), ".".join(parts)) if is_name else ("", "")
    names = {(node.module or "").partition(".")[0] for node in imports}
    names -= {
        name for name in names if (folder / name).exists() or (folder / f"{name}.py").exists()
    }
    above = [each for each in (folder, *folder.parents) if each.name in names]
    return (str(above[-1].parent), "") if above else ("", "")
