"""What check says of a script whose training is in modules that it could not read."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import run

SCRIPT = """\
import torch
from solver import Solver
from data.loaders import make


def main():
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    Solver(model, optimizer, make()).train()


if __name__ == "__main__":
    main()
"""
TOLD = "nothing found in what could be read; not read: solver, data.loaders"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def test_the_imports_are_named_also_where_the_result_is_remembered(script: Path) -> None:
    for _ in range(2):
        result = run("check", script)
        assert result.exit_code == 0
        assert f"{script}: {TOLD}\n" in result.stderr
        assert "0 findings in 1 file\n" in result.stderr


def test_nothing_is_said_once_they_are_there(script: Path) -> None:
    (script.parent / "data").mkdir()
    (script.parent / "data" / "loaders.py").write_text("def make():\n    return []\n")
    assert "not read: solver\n" in run("check", script).stderr
    (script.parent / "solver.py").write_text("class Solver:\n    pass\n")
    assert "data.loaders" not in run("check", script).stderr


def test_a_module_that_only_defines_is_no_program(script: Path) -> None:
    script.write_text(SCRIPT.partition("if __name__")[0])
    assert "not read" not in run("check", script).stderr


def test_of_many_scripts_the_first_are_named(script: Path) -> None:
    for number in range(4):
        script.with_name(f"train_{number}.py").write_text(SCRIPT + "\n" * number)
    told = run("check", script.parent).stderr
    assert told.count(TOLD) == 3
    assert "nor was all read of 2 other files\n" in told


BY_NAME = """\
import importlib
import torch

if __name__ == "__main__":
    importlib.import_module({name}).Trainer().fit(torch.randn(2, 2))
"""


def test_a_module_that_the_run_names_is_told(script: Path) -> None:
    script.write_text(BY_NAME.format(name='"trainers." + input()'))
    told = 'not read: importlib.import_module("trainers." + input())\n'
    assert told in run("check", script).stderr
    assert told in run("patch", "--dry-run", script).stderr
    script.write_text(BY_NAME.format(name='"json"'))
    assert "not read" not in run("check", script).stderr


def test_a_module_that_an_imported_one_finds_by_an_option_is_named(script: Path) -> None:
    package = script.parent / "solver"
    package.mkdir()
    package.joinpath("__init__.py").write_text(
        "import importlib\n\ndef Solver(kind, *rest):\n"
        '    return importlib.import_module("solver." + kind).make(*rest)\n'
    )
    assert 'importlib.import_module("solver." + kind)' in run("check", script).stderr
