"""Where runs are recorded: in the project that one is in, else in the state folder."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from command_line import run
from ddpfix.launchers.running.run_folder import default_folder, project_folder
from launched import RECIPE


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder, which is where one is."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(home)
    return home


def project(home: Path) -> Path:
    """A repository with a script, in a folder below it, and its recipe."""
    folder = home / "work"
    (folder / "task" / "code").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", folder], check=True)
    (folder / "task" / "code" / "run.py").write_text("print('trained')\n")
    (folder / "task" / "own.toml").write_text(RECIPE)
    return folder


def launched(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> None:
    monkeypatch.chdir(folder)
    own = ["--recipe", "./own.toml", "--script", "code/run.py", "--cpu", "--processes", "1"]
    result = run("launch", *own, *words)
    assert result.exit_code == 0, result.output


def test_a_run_is_recorded_in_its_project_and_git_does_not_see_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(home)
    before = git_status(folder)
    launched(monkeypatch, folder / "task")
    (own,) = (folder / ".ddpfix" / "runs").iterdir()
    assert json.loads((own / "run.json").read_text())["cause"] == "finished"
    assert git_status(folder) == before
    assert not (home.parent / "state" / "ddpfix" / "runs").exists()
    for place in (folder, folder / "task" / "code"):
        monkeypatch.chdir(place)
        assert f"{own.name}: finished" in run("status").stdout
    monkeypatch.chdir(home)
    assert run("status").stdout == ""
    assert f"{own.name}: finished" in run("status", own).stdout


def git_status(folder: Path) -> str:
    command = ["git", "-C", str(folder), "status", "--porcelain", "--untracked-files=all"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_runs_of_the_project_and_of_the_state_folder_are_listed_by_their_time(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(home) / "task"
    state = home.parent / "state" / "ddpfix" / "runs"
    launched(monkeypatch, folder, "--runs", str(state))
    launched(monkeypatch, folder)
    (old,), (new,) = state.iterdir(), (folder.parent / ".ddpfix" / "runs").iterdir()
    new = new.rename(new.with_name(f"3000{new.name[4:]}"))
    listed = run("status").stdout.splitlines()
    assert [line.partition(":")[0] for line in listed] == [old.name, new.name]
    assert run("status", "3000").stdout.startswith(new.name)
    assert "no run 'none' in " in run("status", "none").stderr


def test_a_user_s_own_ignore_file_stays(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project(home)
    (folder / ".ddpfix").mkdir()
    (folder / ".ddpfix" / ".gitignore").write_text("runs\n")
    launched(monkeypatch, folder / "task")
    assert (folder / ".ddpfix" / ".gitignore").read_text() == "runs\n"


@pytest.mark.parametrize("mark", [".git", "pyproject.toml", "setup.cfg", "setup.py", ".ddpfix"])
def test_the_nearest_folder_with_a_mark_is_the_project(home: Path, mark: str) -> None:
    inner = home / "outer" / "inner" / "code"
    inner.mkdir(parents=True)
    (home / "outer" / ".git").mkdir()
    assert project_folder(inner) == home / "outer"
    (home / "outer" / "inner" / mark).mkdir()
    assert project_folder(inner) == home / "outer" / "inner"


def test_the_home_folder_is_no_project(home: Path) -> None:
    (home / ".git").mkdir()
    (home / "code").mkdir()
    (home.parent / "setup.py").touch()
    assert project_folder(home / "code") is None
    assert default_folder("r").is_relative_to(home.parent / "state")
