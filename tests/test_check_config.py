"""[tool.ddpfix] in pyproject.toml."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from checkout import ROOT
from command_line import LEGACY, run
from ddpfix.patcher.frontend.config import KINDS, Config, read_config

HEAD = "[project]\nname = 'x'\n\n[tool.ddpfix]\n"
BAD = [
    pytest.param("selct = ['DF2']\n", ":5: ", "did you mean select?", id="misspelt key"),
    pytest.param("colour = true\n", ":5: ", "it has select, ignore", id="unknown key"),
    pytest.param("notes = 1\n", ":5: ", "notes is to be true or false, not 1", id="no flag"),
    pytest.param("jobs = 2\nselect = 'DF2'\n", ":6: ", "select is to be a list", id="no list"),
    pytest.param("exclude = [1]\n", ":5: ", "a list of strings, not [1]", id="numbers"),
    pytest.param("jobs = true\n", ":5: ", 'a positive number or "auto"', id="jobs a flag"),
    pytest.param("jobs = 0\n", ":5: ", 'a positive number or "auto"', id="no jobs"),
    pytest.param("output-format = 'xml'\n", ":5: ", "one of full, concise", id="no format"),
    pytest.param("notes = yes\n", ":5: ", "not valid TOML", id="not TOML"),
    pytest.param("select = ['XY']\n", ": ", "starts with XY", id="no such rule"),
]


@pytest.mark.parametrize("command", ["check", "patch"])
@pytest.mark.parametrize(("lines", "place", "message"), BAD)
def test_a_setting_that_cannot_be_used_is_one_line_and_exit_2(
    tmp_path: Path, command: str, lines: str, place: str, message: str
) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text(HEAD + lines)
    (tmp_path / "run.py").write_text(LEGACY)
    result = run(command, tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"ddpfix: {file}{place}")
    assert message in line
    assert (tmp_path / "run.py").read_text() == LEGACY


def test_a_section_that_is_no_table_is_one_line_and_exit_2(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool]\nddpfix = 3\n")
    (tmp_path / "run.py").write_text(LEGACY)
    result = run("check", tmp_path)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"ddpfix: {tmp_path / 'pyproject.toml'}:2: ")


def test_the_page_of_settings_shows_some_that_can_be_used(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    text = page.partition("```toml\n")[2].partition("```")[0]
    (tmp_path / "pyproject.toml").write_text(text)
    config = read_config(str(tmp_path))
    assert (config.select, config.ignore, config.jobs) == (("DF",), ("DF405",), None)
    assert all(f"\n{key} = " in text for key in KINDS)


def test_every_key_is_a_setting() -> None:
    assert {key.replace("-", "_") for key in KINDS} == set(Config.__annotations__) - {"file"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A script in a folder of a project; the nearest pyproject.toml has no section."""
    folder = tmp_path / "part"
    folder.mkdir()
    (folder / "run.py").write_text(LEGACY)
    (folder / "pyproject.toml").write_text("[project]\nname = 'ddpfix-user'\n")
    return tmp_path


def settings(project: Path, lines: str) -> None:
    (project / "pyproject.toml").write_text(HEAD + lines)


def test_ignored_codes_are_not_reported_nor_edited(project: Path) -> None:
    settings(project, "ignore = ['DF203']\n")
    assert run("check", project).exit_code == 0
    assert run("patch", project).exit_code == 0
    assert (project / "part" / "run.py").read_text() == LEGACY


def test_the_command_line_wins(project: Path) -> None:
    settings(project, "select = ['DF4']\noutput-format = 'json'\n")
    script = project / "part" / "run.py"
    assert json.loads(run("check", script).stdout) == []
    (row,) = json.loads(run("check", "--select", "DF203", script).stdout)
    assert row["code"] == "DF203"
    assert (
        " DF203 error: "
        in run("check", "--select", "DF203", "--output-format", "concise", script).stdout
    )


def test_notes_are_shown_on_request_and_hidden_again(project: Path) -> None:
    (project / "part" / "run.py").write_text(
        "import torch\nfor b in bs: b.backward()\n"
        "y = 1  # noqa: DF203\nif __name__ == '__main__': main()\n"
    )
    settings(project, "notes = true\noutput-format = 'concise'\n")
    assert " DF100 note: " in run("check", project).stdout
    assert run("check", "--no-notes", project).stdout == ""


EXCLUDE = [
    pytest.param("part", id="a folder's name"),
    pytest.param("run.py", id="a file's name"),
    pytest.param("part/*.py", id="a path from the file that says so"),
    pytest.param("p?rt/", id="a folder's pattern"),
]


@pytest.mark.parametrize("pattern", EXCLUDE)
def test_excluded_files_are_found_by_name_only(
    project: Path, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project / "part")
    (project / "clean.py").write_text("import torch\n")
    settings(project, f"exclude = ['{pattern}']\n")
    assert run("check", project).exit_code == 0
    assert run("check", project / "part" / "run.py").exit_code == 1
    assert run("check", "--exclude", "other", project).exit_code == 1
