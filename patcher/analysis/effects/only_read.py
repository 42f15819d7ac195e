"""Files that are opened to be read and written, and only read."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import argument, names_within

READERS = ("load", "safe_load", "reader", "list", "sorted", "len", "DictReader", "print")
COPIES = ("array", "asarray", "from_numpy", "tensor", "list", "len", "float", "int")
ASKS = ("shape", "dtype", "size", "keys", "values", "items", "astype")
READS = frozenset(["read", "readline", "readlines", "close", "keys", "values", "items", "get"])


def is_only_read(module: Module, call: ast.Call) -> bool:
    """``pickle.load(open(path, "rb+"))``, which leaves the file as it is.

    So do ``file = h5py.File(path, "r+")`` and lines that read ``file["data"][:]`` and close it.
    """
    mode, holder = argument(call, 1, "mode"), module.parents[call]
    if not (isinstance(mode, ast.Constant) and str(mode.value).startswith("r")):
        return False
    match holder:
        case ast.Call(args=[taken, *_]) if taken is call:
            return module.last_name(holder.func) in READERS[:3]
        case ast.Attribute(attr="read" | "readline" | "readlines"):
            return True
        case ast.Assign(targets=[ast.Name() as name]):
            return reads_alone(module, name, module.scope_statements(call))
        case ast.withitem(optional_vars=ast.Name() as name):
            return reads_alone(module, name, module.scope_statements(call))
    return False


def reads_alone(module: Module, name: ast.Name, scope: list[ast.stmt]) -> bool:
    """Whether a name of a function has one value, and each use of it reads the file."""
    if len(module.stores.get((module.function(name), name.id), ())) != 1:
        return False
    uses = [use for use in names_within(scope, {name.id}) if use is not name]
    return bool(uses) and all(is_read(module, use) for use in uses)


def is_read(module: Module, use: ast.Name) -> bool:
    """``file.read()``, ``file["data"][:]``, ``json.load(file)`` and ``for line in file:``."""
    node: ast.expr = use
    user = module.parents[node]
    while isinstance(user, ast.Subscript) and user.value is node:
        if not isinstance(user.ctx, ast.Load):
            return False
        node, user = user, module.parents[user]
    if node is not use and is_copied(node):
        return True
    match user:
        case ast.Attribute(attr=attr):
            return attr in (READS if node is use else ASKS)
        case ast.Call(args=[taken, *_]) if taken is node:
            return module.last_name(user.func) in (READERS if node is use else COPIES)
        case ast.For(iter=source):
            return source is node
    return False


def is_copied(node: ast.expr) -> bool:
    """``file["data"][:]``, and not ``file["data"]``, by whose name it may be written."""
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice | ast.Tuple)
