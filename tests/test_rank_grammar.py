"""What rides in the ranks keeps to the oldest Python that they may have, and to its library."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ddpfix import launchers
from ddpfix.launchers.backends.interpreter import OLDEST_PYTHON

ROOT = Path(launchers.__file__).parent
ENTRIES = [
    ROOT / "rank_start.py",
    ROOT / "trace" / "__main__.py",
    ROOT / "trace" / "sealed.py",
    ROOT / "running" / "main_memory.py",
    ROOT / "running" / "probe_worker.py",
]
MINOR = (OLDEST_PYTHON[0], OLDEST_PYTHON[1])
LIBRARY = sys.stdlib_module_names - {"graphlib", "tomllib", "zoneinfo"}
OF_THE_SCRIPT = {"numpy", "torch", "transformers"}
NEWER_NAMES = {
    "batched",
    "cache",
    "is_relative_to",
    "pairwise",
    "removeprefix",
    "removesuffix",
    "with_stem",
}
"""Of functools, itertools, str and Path, since 3.9."""


def imports_of(path: Path) -> Iterator[tuple[str, Path | None]]:
    """The modules that a file imports at run time; those of the ranks' own with their files."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body.clear()  # for type checkers alone
        elif isinstance(node, ast.Import):
            yield from ((name.name, None) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or "", None
        elif isinstance(node, ast.ImportFrom):
            folder = path.parents[node.level - 1]
            base = folder.joinpath(*(node.module or "").split("."))
            if base.with_suffix(".py").is_file():
                yield "", base.with_suffix(".py")
            else:
                yield "", base / "__init__.py"
                yield from (("", base / f"{name.name}.py") for name in node.names)


def riding() -> list[Path]:
    """The files that run in a rank: the entries, all that they import, and its packages."""
    found: list[Path] = []
    new = [*ENTRIES, ROOT.parent / "__init__.py"]
    while new:
        path = new.pop()
        if path in found:
            continue
        found.append(path)
        new += [file for _, file in imports_of(path) if file is not None]
        new += [path.parent / "__init__.py"]
    return sorted(found)


RIDING = riding()


def newer_names(text: str) -> list[str]:
    """What a file calls or evaluates at run time that Python 3.8 does not have."""
    found = []
    annotations = set()
    for node in ast.walk(ast.parse(text)):
        for field in ("annotation", "returns"):
            below = getattr(node, field, None)
            annotations.update(ast.walk(below) if isinstance(below, ast.AST) else ())
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            annotations.update(part for each in node.body for part in ast.walk(each))
        if node in annotations:
            continue
        if isinstance(node, ast.Attribute) and node.attr in NEWER_NAMES | {"safe_path"}:
            found.append(node.attr)
        if isinstance(node, ast.ImportFrom):
            found += [name.name for name in node.names if name.name in NEWER_NAMES]
        if isinstance(node, ast.keyword) and node.arg == "strict":
            found.append("strict")
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            generic = {"list", "dict", "tuple", "set", "type", "Callable", "Iterator", "Sequence"}
            found += [node.value.id] * (node.value.id in generic)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
            found += ["|"] * isinstance(node.args[1], ast.BinOp)
    return found


def test_the_files_of_the_ranks_are_found() -> None:
    names = {path.relative_to(ROOT.parent).as_posix() for path in RIDING}
    assert {"launchers/trace/recorder.py", "launchers/trace/__init__.py", "__init__.py"} <= names
    assert "launchers/trace/read.py" not in names
    assert all(path.is_file() for path in RIDING)


@pytest.mark.parametrize("path", RIDING, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_file_of_the_ranks_has_what_the_oldest_python_has(path: Path) -> None:
    text = path.read_text()
    ast.parse(text, str(path), feature_version=MINOR)
    assert newer_names(text) == []


@pytest.mark.parametrize("path", RIDING, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_file_of_the_ranks_imports_only_what_is_there(path: Path) -> None:
    names = {name.partition(".")[0] for name, _ in imports_of(path)} - {""}
    assert names <= LIBRARY | OF_THE_SCRIPT


def test_a_newer_statement_is_refused() -> None:
    newer = "match world:\n    case 1:\n        pass\n"
    ast.parse(newer)
    with pytest.raises(SyntaxError):
        ast.parse(newer, feature_version=MINOR)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("isinstance(a, int | str)", ["|"]),
        ("isinstance(a, (int, str))", []),
        ("def f(a: list[int]) -> dict[str, int]: ...", []),
        ("Pair = tuple[int, int]", ["tuple"]),
        ("from itertools import pairwise", ["pairwise"]),
        ("zip(a, b, strict=True)", ["strict"]),
        ("name.removeprefix('a')", ["removeprefix"]),
    ],
)
def test_a_newer_name_is_refused(text: str, found: list[str]) -> None:
    assert newer_names(text) == found
