"""``benchmarks/mutations.py``: the points at which a source is broken, and into what."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from checkout import ROOT

# Beside each line, what becomes of it; only annotations, assertions and docstrings are left alone.
SOURCE = '''"""A docstring."""
from x import Insert
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import y
def f(a: int = 1) -> list[int]:
    assert a == 1
    if a < 2 and b or (c) and d:
        return [Insert(a, "x"), Insert(a, "y")]
    raise E(a, *b) if a is not None else Insert(stmt, code, "first")
'''
MUTATIONS = {
    ("comparison", "< -> <="),
    ("comparison", "is not -> is"),
    ("and, or", "and -> or"),
    ("and, or", "or -> and"),
    ("not", "a < 2 and b or (c) and d -> (not (a < 2 and b or (c) and d))"),
    ("not", "a is not None -> (not (a is not None))"),
    ("number", "1 -> 2"),
    ("number", "1 -> (0)"),
    ("number", "2 -> 3"),
    ("number", "2 -> (1)"),
    ("result", '[Insert(a, "x"), Insert(a, "y")] -> None'),
    ("statement", 'raise E(a, *b) if a is not None else Insert(stmt, code, "first") -> pass'),
    ("arguments", 'a, "x" -> "x", a'),
    ("arguments", 'a, "y" -> "y", a'),
    ("arguments", "a, *b -> *b, a"),
    ("arguments", "stmt, code -> code, stmt"),
    ("arguments", 'code, "first" -> "first", code'),
    ("insertion", '-> , "after"'),
    ("insertion", '"first" -> "last"'),
    ("insertion", 'Insert(a, "x"), Insert(a, "y") -> Insert(a, "y"), Insert(a, "x")'),
}


@pytest.fixture(scope="module")
def mutations() -> ModuleType:
    path = ROOT / "benchmarks" / "mutations.py"
    spec = importlib.util.spec_from_file_location("mutations", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutations"] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


def test_every_kind_breaks_a_source_at_these_points(mutations: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(SOURCE)
    found = mutations.mutants(tmp_path, ["a.py"])
    made = {(kind, one.mutation.strip()) for kind, some in found.items() for one in some}
    assert made == MUTATIONS
    assert set(mutations.KINDS) == {kind for kind, _ in MUTATIONS} | {"truth"}


def test_a_mutant_is_the_source_but_for_its_point_and_still_python(
    mutations: ModuleType, tmp_path: Path
) -> None:
    file = ROOT / "launchers" / "planning" / "planner.py"
    source = mutations.Source(file.parent, file.name)
    every = [one for some in mutations.mutants(file.parent, [file.name]).values() for one in some]
    assert len(every) > 100
    for one in every:
        broken = source.applied(one)
        ast.parse(broken)
        assert broken != source.content
        assert source.content[: one.start] == broken[: one.start]
        assert broken.endswith(source.content[one.end :])
        assert source.content[: one.start].count(b"\n") + 1 == one.line
