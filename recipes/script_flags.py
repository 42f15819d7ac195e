"""Read the flags that a script declares, with their defaults, from its text.

The patcher uses it for single calls, recipes and launchers for whole scripts.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..record import record


@record
class Option:
    """One ``add_argument``: its spellings, the attribute it sets, its default if a constant.

    Where the script reads ``sys.argv`` itself, it is a field of the class that it sets.
    """

    call: ast.Call | ast.AnnAssign
    spellings: tuple[str, ...]
    dest: str
    default: object = None

    @property
    def flags(self) -> list[str]:
        """The spellings that begin with two dashes."""
        return [spelling for spelling in self.spellings if spelling.startswith("--")]

    @property
    def is_switch(self) -> bool:
        """Whether it takes no value and sets True."""
        if isinstance(self.call, ast.AnnAssign):
            return False
        actions = (keyword.value for keyword in self.call.keywords if keyword.arg == "action")
        return any(_constant(action) == "store_true" for action in actions)


def declared_option(call: ast.Call) -> Option | None:
    """The option that a call of ``add_argument`` declares; None without a constant spelling."""
    spellings = [arg for arg in map(_constant, call.args) if isinstance(arg, str)]
    if not spellings:
        return None
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    name = next((one for one in spellings if one.startswith("--")), spellings[0])
    if isinstance(dest := keywords.get("dest"), ast.Constant):
        name = str(dest.value)
    default = _constant(keywords["default"]) if "default" in keywords else None
    return Option(call, tuple(spellings), name.lstrip("-").replace("-", "_"), default)


def declared_flags(script: Path) -> dict[str, object] | None:
    """The flags of a script with their defaults, None for defaults that are no constants.

    They are those of every ``add_argument("--flag", …)`` in the script and the modules of its
    folder that it imports, directly or not; without any, the fields of their dataclasses if
    ``sys.argv`` is read. Returns None without these either, as where the script is missing, is not
    valid Python 3, or gets its flags from elsewhere.
    """
    trees = list(_trees(script))
    flags: dict[str, object] = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
                option = declared_option(node)
                flags |= dict.fromkeys(option.flags, option.default) if option else {}
            elif isinstance(node, ast.For):
                flags |= dict.fromkeys(_flags_of_loop(node))
    nodes = (node for tree in trees for node in ast.walk(tree))
    reads_argv = any(getattr(node, "attr", "") == "argv" for node in nodes)
    return flags or (_dataclass_flags(trees) if reads_argv else {}) or None


def _flags_of_loop(loop: ast.For) -> Iterator[str]:
    """The flags of ``for name in ("--a", "--b"): parser.add_argument(name)``, and of pairs."""
    targets = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
    names = {
        arg.id
        for node in ast.walk(loop)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument"
        for arg in node.args
        if isinstance(arg, ast.Name)
    }
    for row in getattr(loop.iter, "elts", ()):
        values = row.elts if isinstance(loop.target, ast.Tuple) and _is_row(row) else [row]
        for target, value in zip(targets, values, strict=False):
            flag = _constant(value)
            if getattr(target, "id", "") in names and str(flag).startswith("--"):
                yield str(flag)


def _is_row(node: ast.expr) -> bool:
    return isinstance(node, ast.Tuple | ast.List)


def _dataclass_flags(trees: Iterable[ast.Module]) -> dict[str, object]:
    """The fields of dataclasses as flags, with their defaults where these are constants."""
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


def _trees(script: Path) -> Iterator[ast.Module]:
    """The trees of the script and of the modules of its folder that it imports."""
    pending, seen = [script], {script}
    while pending:
        tree = _tree(pending.pop(0))
        yield tree
        modules = [path for path in _imports(script.parent, tree) if path not in seen]
        seen.update(modules)
        pending += [path for path in modules if path.is_file()]


def _imports(folder: Path, tree: ast.Module) -> list[Path]:
    """Files in ``folder`` that the imported modules would have."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return sorted(folder / f"{name.replace('.', '/')}.py" for name in names)


def _constant(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) else None
