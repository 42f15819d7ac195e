"""Capabilities as such: chosen by name, added whole or not at all, told when they cannot be."""

from __future__ import annotations

import ast
import py_compile
import shutil
from pathlib import Path

import ddpfix.fixtures
import pytest
from cases import module
from command_line import run
from ddpfix.errors import InputError
from ddpfix.fixtures.tiny import copy_family
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.capabilities import SECTIONS, all_capabilities, select_capabilities
from ddpfix.patcher.capabilities.models import model_constructions, transformer_parts
from ddpfix.patcher.engine.patch import patch

NAMES = [one.name for one in all_capabilities()]
SHAPES = Path(ddpfix.fixtures.__file__).parent / "shapes"
SCRIPTS = sorted(SHAPES.glob("*.py")) + sorted(SHAPES.glob("*/run.py"))


def test_every_manual_has_its_sections_and_names_its_flags() -> None:
    for one in all_capabilities():
        sections = [line.split("  ")[0] for line in one.manual.splitlines() if line[:1].strip()]
        assert [name for name in sections if name in SECTIONS] == list(SECTIONS), one.name
        assert all(flag.spelling in one.manual for flag in one.flags), one.name


@pytest.mark.parametrize(
    ("wanted", "unwanted", "found"),
    [
        ((), (), []),
        (("all",), (), NAMES),
        (("all",), ("loader",), [name for name in NAMES if name != "loader"]),
        (("loader", "checkpointing"), (), ["checkpointing", "loader"]),
        (("loader",), ("loader",), []),
        (("all",), ("all",), []),
    ],
)
def test_names_choose_in_the_order_of_adding(
    wanted: tuple[str, ...], unwanted: tuple[str, ...], found: list[str]
) -> None:
    assert [one.name for one in select_capabilities(wanted, unwanted)] == found


def test_a_name_that_no_capability_has_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InputError, match=r"no capability teleport; there are .*loader"):
        select_capabilities(["teleport"])


def test_the_command_line_names_them_and_explain_prints_the_manual(tmp_path: Path) -> None:
    script = copy_family("bigclonebench", tmp_path)
    before = script.read_bytes()
    done = run("patch", "--with", "teleport", script)
    assert (done.exit_code, script.read_bytes()) == (2, before)
    done = run("patch", "--with", "checkpointing,loader", script)
    assert done.exit_code == 1
    text = script.read_text()
    assert "--gradient_checkpointing" in text
    assert "--dataloader_num_workers" in text
    done = run("explain", "loader")
    assert done.exit_code == 0
    assert "--dataloader_prefetch_factor" in done.output


@pytest.mark.parametrize(
    ("config", "words", "added"),
    [
        pytest.param("", [], False, id="repairs alone unless asked for more"),
        pytest.param("capabilities = ['loader']", [], True, id="what the project asks for"),
        pytest.param("capabilities = ['loader']", ["--with", "checkpointing"], False, id="not it"),
        pytest.param("", ["--without", "checkpointing"], True, id="all but what is left out"),
        pytest.param("", ["--without", "all"], False, id="none"),
    ],
)
def test_the_command_line_wins_over_the_project(
    config: str, words: list[str], added: bool, tmp_path: Path
) -> None:
    script = copy_family("bigclonebench", tmp_path)
    (tmp_path / "pyproject.toml").write_text(f"[tool.ddpfix]\n{config}\n")
    assert run("patch", *words, script).exit_code == 1
    assert ("loader_options" in script.read_text()) == added


def test_a_project_that_asks_for_what_there_is_not_is_told_its_file(tmp_path: Path) -> None:
    script = copy_family("bigclonebench", tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.ddpfix]\ncapabilities = ['teleport']\n")
    done = run("patch", script)
    assert done.exit_code == 2
    assert "pyproject.toml: no capability teleport" in done.stderr


def test_what_cannot_be_added_is_told_with_its_place_and_reason(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    shutil.copy(SHAPES / "cfg_local_rank.py", script)
    done = run("patch", "--with", "loader", script)
    assert done.exit_code == 1
    assert "without loader" in done.output
    assert "no command line" in done.output
    assert "dataloader" not in script.read_text()


def test_what_is_left_is_told_in_the_lines_of_the_result(tmp_path: Path) -> None:
    result = patch(copy_family("bigclonebench", tmp_path), capabilities=all_capabilities())
    texts = {change.source.name: change.text for change in result.changes}
    assert result.findings_after
    for finding in result.findings_after:
        source = finding.module.source
        assert source.text == texts.get(source.name, source.text), finding.code


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_all_together_leave_a_script_that_compiles_checks_clean_and_is_stable(
    script: Path, tmp_path: Path
) -> None:
    folder = script.parent if script.name == "run.py" else None
    if folder:
        shutil.copytree(folder, tmp_path / "it")
    else:
        (tmp_path / "it").mkdir()
        shutil.copy(script, tmp_path / "it" / "run.py")
    path = tmp_path / "it" / "run.py"
    result = patch(path, unsafe=True, capabilities=all_capabilities())
    if result.refusal:
        assert "DF105" in result.refusal  # results_by_queue
        return
    assert result.remaining == []
    result.write()
    for file in path.parent.glob("*.py"):
        py_compile.compile(str(file), doraise=True)
        assert "ddpfix" not in {
            alias.name.partition(".")[0]
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.Import)
            for alias in node.names
        }
    again = patch(path, unsafe=True, capabilities=all_capabilities())
    assert (again.refusal, again.changes, again.remaining) == ("", (), [])
    assert {f.code for f in again.capability_failures} == {
        f.code for f in result.capability_failures
    }


THROUGH_A_NAME = """
from torch.nn.parallel import DistributedDataParallel
from transformers import RobertaModel
class Net(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        enc = RobertaModel(config)
        self.encoder = enc
model = DistributedDataParallel(Net(config))
"""


def test_a_model_that_its_constructor_keeps_through_a_local_name_is_found() -> None:
    program = Program(module(THROUGH_A_NAME))
    (construction,) = model_constructions(program)
    assert transformer_parts(program, construction) == {"encoder": "RobertaModel"}
