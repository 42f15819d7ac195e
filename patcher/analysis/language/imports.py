"""Which files the import statements of a program mean, as Python would find them.

Pure: what exists is asked through ``exists``, so that a caller can record what a program depends
on, also the files that are not there. A local folder that is named like a library is that library.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from ....recipes.script_flags import declared_option
from ....record import record
from ...source.libraries import LIBRARIES, WITHOUT_FOLDERS
from ...source.module import Module

Exists = Callable[[str], bool]
Names = tuple[str, ...]
Finder = Callable[[Names, Names], str | None]


@record
class Links:
    """What the import statements of one module bind, as far as it lies in local files.

    ``modules``: the file of a dotted name as the code writes it (``a.b`` of ``import a.b``).
    ``names``: the file and the name in it, of names taken from a module. ``stars``: files all of
    whose names are taken. ``files``: all files that the imports run, in their order. ``unread``:
    line and name of local modules that cannot be found; ``missing``: those of modules that are
    neither local files nor known libraries.
    """

    modules: dict[str, str]
    names: dict[str, tuple[str, str]]
    stars: tuple[str, ...]
    files: tuple[str, ...]
    unread: tuple[tuple[int, str], ...]
    missing: tuple[tuple[int, str], ...]


def module_finder(exists: Exists) -> Finder:
    """A function from the parts of a module's name and the roots to its file.

    The file of ``a.b.c`` is ``a/b/c.py`` or ``a/b/c/__init__.py`` under a root. Each is looked for
    once: all modules of a program import the same libraries.
    """

    @cache
    def find_module(parts: Names, roots: Names) -> str | None:
        for root in roots:
            base = os.path.join(root, *parts)
            for path in (os.path.join(base, "__init__.py"), f"{base}.py"):
                if exists(path):
                    return path
        return None

    return find_module


def links_of(
    module: Module, path: str, roots: Sequence[str], exists: Exists, find_module: Finder
) -> Links:
    """What the module in the file ``path`` imports from local files."""
    roots = tuple(roots)
    modules: dict[str, str] = {}
    names: dict[str, tuple[str, str]] = {}
    stars: list[str] = []
    files: dict[str, None] = {}
    unread: dict[str, int] = {}
    missing: list[tuple[int, str]] = []

    def find(parts: Names, bases: Names, is_local: bool = False) -> str | None:
        """The file of a module; the packages around it are noted too."""
        top = find_module(parts[:1], bases)
        if top is None and parts[0] in WITHOUT_FOLDERS and not is_local:
            return None
        for end in range(1, len(parts)):
            package = find_module(parts[:end], bases)
            if package is not None:
                files[package] = None
        found = top if len(parts) == 1 else find_module(parts, bases)
        if found is not None:
            files[found] = None
        return found

    def miss(node: ast.stmt, name: str, is_local: bool) -> None:
        if name.partition(".")[0] not in LIBRARIES:
            missing.append((node.lineno, name))
        if is_local and not _is_optional(module, node):
            unread.setdefault(name, node.lineno)

    for plain in module.nodes(ast.Import):
        for alias in plain.names:
            parts = tuple(alias.name.split("."))
            found = find(parts, roots)
            if found is None:
                miss(plain, alias.name, parts[0] in modules or _is_local(parts, roots, find_module))
            elif alias.asname:
                modules[alias.asname] = found
            for end in range(1, len(parts) + 1 if not alias.asname else 0):
                inner = find_module(parts[:end], roots) if found else None
                if inner is not None:
                    modules[".".join(parts[:end])] = inner
    for stmt in module.nodes(ast.ImportFrom):
        bases = (_folder_above(path, stmt.level),) if stmt.level else roots
        parts = tuple(stmt.module.split(".")) if stmt.module else ()
        is_local = bool(stmt.level)
        base = find(parts, bases, is_local) if parts else None
        if not parts and exists(own := os.path.join(bases[0], "__init__.py")):
            base = own
            files[own] = None
        for alias in stmt.names:
            local = alias.asname or alias.name
            if alias.name == "*":
                if base is not None:
                    stars.append(base)
                else:
                    miss(stmt, "." * stmt.level + ".".join(parts), is_local)
                continue
            is_package = base is None or base.endswith(f"{os.sep}__init__.py")
            inner = find((*parts, alias.name), bases, is_local) if is_package else None
            if inner is not None:
                modules.setdefault(local, inner)
            if base is not None:  # a name of the package hides a module in it
                names.setdefault(local, (base, alias.name))
            elif inner is None:
                whole = "." * stmt.level + ".".join(parts or [alias.name])
                miss(stmt, whole, is_local or _is_local(parts, roots, find_module))
    for local, name in _dynamic_imports(module):
        found = find(tuple(name.split(".")), roots)
        if found is not None and local:
            modules.setdefault(local, found)
    lines = tuple(sorted((line, name) for name, line in unread.items()))
    return Links(modules, names, tuple(stars), tuple(files), lines, tuple(missing))


def _folder_above(path: str, level: int) -> str:
    for _ in range(level):
        path = os.path.dirname(path)
    return path


def _is_local(parts: Names, roots: Names, find_module: Finder) -> bool:
    """Whether the package of a module that was not found is a local one."""
    return len(parts) > 1 and find_module(parts[:1], roots) is not None


def _is_optional(module: Module, node: ast.stmt) -> bool:
    """Whether the program goes on without the import: it stands in a ``try``."""
    return any(isinstance(up, ast.Try) for up in module.ancestors(node))


def imports_named_at_run_time(module: Module) -> Iterator[ast.Call]:
    """``importlib.import_module("models." + name)``: which module it is, the run alone shows."""
    for call in module.calls_to("import_module", "__import__", "run_module", "run_path"):
        if call.args and not isinstance(call.args[0], ast.Constant):
            yield call


def _dynamic_imports(module: Module) -> Iterator[tuple[str, str]]:
    """The local name (or "") and the module of ``x = importlib.import_module("a.b")``.

    Where an option names it, ``import_module("models." + args.model)``, that of its default.
    """
    for call in module.calls_to("import_module", "__import__"):
        name = _text_by_default(module, call.args[0]) if call.args else None
        if name is None or not all(part.isidentifier() for part in name.split(".")):
            continue
        parent = module.parents[call]
        target = parent.targets[0] if isinstance(parent, ast.Assign) else None
        yield target.id if isinstance(target, ast.Name) else "", name


def _text_by_default(module: Module, value: ast.expr) -> str | None:
    """A text that is a constant, or made of an option of this module, by what that is by default.

    ``"models." + args.model``, ``"models.%s" % args.model`` and ``f"models.{args.model}"``.
    """
    match value:
        case ast.Constant(value=str() as text):
            return text
        case ast.Attribute(attr=option):
            declared = map(declared_option, module.calls_to("add_argument"))
            defaults = (each.default for each in declared if each and each.dest == option)
            default = next(defaults, None)
            return default if isinstance(default, str) else None
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = [_text_by_default(module, each) for each in (left, right)]
        case ast.BinOp(left=ast.Constant(value=str() as whole), op=ast.Mod(), right=right):
            filled = _text_by_default(module, right)
            return None if filled is None or whole.count("%s") != 1 else whole % filled
        case ast.JoinedStr(values=values):
            inner = [e.value if isinstance(e, ast.FormattedValue) else e for e in values]
            parts = [_text_by_default(module, each) for each in inner]
        case _:
            return None
    known = [part for part in parts if part is not None]
    return "".join(known) if len(known) == len(parts) else None
