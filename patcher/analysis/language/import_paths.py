"""The folders that a program imports from, as its script and its changes of ``sys.path`` make them.

Nothing is run: a path is known where it is made of constants, ``__file__`` and functions of
``os.path`` and ``pathlib``. Otherwise it is unknown and adds no folder.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator

from ...source.libraries import LIBRARIES
from ...source.module import Module
from ...source.tree import argument

MAX_LEVELS_UP = 4  # folders above the script that are tried as the project's root
# Of a project's folder, also of one that is not installed and on PYTHONPATH instead.
PROJECT_FILES = (
    *("pyproject.toml", "setup.py", "setup.cfg"),
    *("requirements.txt", "environment.yml", "environment.yaml", os.path.join(".git", "config")),
)
MAX_DEPTH = 12


def package_roots(path: str, exists: Callable[[str], bool]) -> list[str]:
    """The folders above a script that is part of a package and started as a module of it."""
    roots = []
    folder = os.path.dirname(path)
    while exists(os.path.join(folder, "__init__.py")) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
        roots.append(folder)
    return roots


def folders_above(module: Module, path: str, exists: Callable[[str], bool]) -> list[str]:
    """The folders above a script that have a module of a package which it imports.

    ``from lab.data import load`` in lab/train.py or tools/train.py, which is started by
    ``python -m lab.train`` or with PYTHONPATH, also where no folder has an ``__init__.py``.
    """
    wanted = [alias.name for node in module.nodes(ast.Import) for alias in node.names]
    for node in module.nodes(ast.ImportFrom):
        if node.module and not node.level:
            wanted += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    roots = []
    folder = os.path.dirname(path)
    for _ in range(MAX_LEVELS_UP):
        root, own = os.path.split(folder)
        names = (name.split(".") for name in wanted)
        files = [
            os.path.join(root, *parts)
            for parts in names
            if own and (parts[0] == own or (len(parts) > 1 and parts[0] not in LIBRARIES))
        ]
        if any(exists(f"{file}.py") or exists(f"{file}/__init__.py") for file in files):
            roots.append(root)
        folder = root
    return roots


def project_roots(path: str, exists: Callable[[str], bool]) -> list[str]:
    """The project's folder and its ``src``, from which an installed checkout is imported."""
    folder = os.path.dirname(path)
    for _ in range(MAX_LEVELS_UP):
        if any(exists(os.path.join(folder, name)) for name in PROJECT_FILES):
            return [folder, os.path.join(folder, "src")]
        folder = os.path.dirname(folder)
    return []


def added_roots(module: Module, path: str, script_folder: str) -> Iterator[tuple[bool, str]]:
    """Folders that a module adds to ``sys.path``, and whether they come before the others."""
    for call in module.calls_to("append", "insert"):
        if module.dotted(call.func) not in ("sys.path.append", "sys.path.insert"):
            continue
        is_first = module.last_name(call.func) == "insert"
        for value in _values(module, call.args[-1]) if call.args else ():
            text = path_text(module, value, path)
            if text is not None:
                yield is_first, os.path.normpath(os.path.join(script_folder, text))


def _values(module: Module, value: ast.expr) -> list[ast.expr]:
    """An expression; for a parameter, what the module's calls of its function pass for it."""
    function = module.function(value)
    if function is None or not isinstance(value, ast.Name):
        return [value]
    names = [each.arg for each in function.args.args]
    if value.id not in names:
        return [value]
    calls = module.calls_to(function.name)
    passed = (argument(call, names.index(value.id), value.id) for call in calls)
    return [each for each in passed if each is not None]


def path_text(module: Module, node: ast.expr, path: str, depth: int = 0) -> str | None:
    """The path that an expression in the file ``path`` stands for; None where it is unknown."""
    if depth > MAX_DEPTH:
        return None

    def part(inner: ast.expr) -> str | None:
        return path_text(module, inner, path, depth + 1)

    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.Name(id="__file__"):
            return path
        case ast.Name():
            value = module.definition(node, node)
            value = value or module.single_assignment(None, node.id)
            return None if value is None else part(value)
        case ast.Attribute(attr="parent"):
            below = part(node.value)
            return None if below is None else os.path.dirname(below)
        case ast.Subscript(value=ast.Attribute(attr="parents", value=base), slice=ast.Constant()):
            folder = part(base)
            count = getattr(node.slice, "value", None)
            for _ in range(count + 1 if isinstance(count, int) and 0 <= count < MAX_DEPTH else 0):
                folder = None if folder is None else os.path.dirname(folder)
            return folder if isinstance(count, int) else None
        case ast.Subscript(value=ast.Call(args=[whole]) as call, slice=ast.Constant(value=0)):
            folder = part(whole) if module.dotted(call.func) == "os.path.split" else None
            return None if folder is None else os.path.dirname(folder)
        case ast.BinOp(op=ast.Div() | ast.Add()):
            return _joined([part(node.left), part(node.right)], isinstance(node.op, ast.Div))
        case ast.Call():
            return _called(module, node, part)
    return None


def _joined(parts: list[str | None], by_separator: bool) -> str | None:
    known = [text for text in parts if text is not None]
    if len(known) < len(parts) or not known:
        return None
    return os.path.join(*known) if by_separator else "".join(known)


def _called(module: Module, call: ast.Call, part: Callable[[ast.expr], str | None]) -> str | None:
    name = module.last_name(call.func)
    arguments = [part(arg) for arg in call.args]
    if name in ("join", "joinpath", "Path") and arguments:
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        base = [part(owner)] if name == "joinpath" and owner is not None else []
        return _joined([*base, *arguments], by_separator=True)
    if name in ("abspath", "realpath") and arguments and arguments[0] is not None:
        return os.path.abspath(arguments[0])
    if name in ("normpath", "expanduser", "str", "fspath") and arguments:
        return arguments[0]
    if name == "dirname" and arguments and arguments[0] is not None:
        return os.path.dirname(arguments[0])
    if name in ("resolve", "absolute", "as_posix") and isinstance(call.func, ast.Attribute):
        return part(call.func.value)
    return "." if name in ("getcwd", "cwd") else None
