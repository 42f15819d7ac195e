"""Each run has a folder of its own, also where several are launched at the same moment."""

from __future__ import annotations

import json
from datetime import datetime, tzinfo
from pathlib import Path

import pytest
from at_once import AT_ONCE, ROUNDS, all_at_once, claims, records
from click.testing import CliRunner
from ddpfix.cli import ddpfix
from ddpfix.launchers.backends.nodes import Nodes
from ddpfix.launchers.gpus.select import GpuRequest
from ddpfix.launchers.planning.options import PlanOptions
from ddpfix.launchers.running import run_folder
from ddpfix.launchers.running.launch import LaunchOptions, prepare
from ddpfix.launchers.running.policy import SupervisionPolicy
from ddpfix.recipes.load import load
from launched import RECIPE


def test_launches_of_one_moment_get_a_folder_each(tmp_path: Path) -> None:
    folders = [folder for of_one in all_at_once(claims, tmp_path) for folder in of_one]
    assert len(set(folders)) == len(folders) == AT_ONCE * ROUNDS
    for number in range(ROUNDS):
        names = sorted(path.name for path in (tmp_path / f"runs-{number}").iterdir())
        assert names == ["run", *(f"run-{count}" for count in range(2, AT_ONCE + 1))]


def test_of_runs_with_one_output_folder_a_single_one_begins(tmp_path: Path) -> None:
    by_process = all_at_once(records, tmp_path)
    taken = "holds the record of another run; choose another --output"
    for by_round in zip(*by_process, strict=True):
        assert sorted(by_round) == ["", *[taken] * (AT_ONCE - 1)]


class AlwaysNow(datetime):
    """A clock that stands still, so that launches one after the other are in one second."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> AlwaysNow:
        return cls(2026, 1, 2, 3, 4, 5, tzinfo=tz)


@pytest.fixture
def one_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a script and its recipe; all launches from it are in the same second."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(run_folder, "datetime", AlwaysNow)
    (tmp_path / "own.toml").write_text(RECIPE)
    (tmp_path / "run.py").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_folder_is_claimed_by_the_launch_itself(
    one_second: Path,
) -> None:
    """Two launches that were prepared in one second, before either of them had begun."""
    recipe = load(str(one_second / "own.toml"))
    asked = PlanOptions(recipe, one_second / "run.py", GpuRequest(), cpu=True, processes=1)
    options = LaunchOptions(asked, SupervisionPolicy(), Nodes())
    prepared = [prepare(options, print) for _ in range(2)]
    assert not (one_second / "state").exists()
    claimed = [each.with_claimed_folder() for each in prepared]
    names = ["20260102-030405-own", "20260102-030405-own-2"]
    assert [each.folder.name for each in claimed] == names
    for each in claimed:
        assert each.own.is_dir()
        assert str(each.folder / "made") in each.command.argv


def test_launches_in_one_second_both_run_and_are_recorded(one_second: Path) -> None:
    words = ["--recipe", str(one_second / "own.toml"), "--script", str(one_second / "run.py")]
    launch = ["launch", *words, "--cpu", "--processes", "1"]
    results = [CliRunner().invoke(ddpfix, launch) for _ in range(2)]
    assert [result.exit_code for result in results] == [0, 0], results[1].output
    runs = sorted((one_second / "state" / "ddpfix" / "runs").iterdir())
    assert [run.name for run in runs] == ["20260102-030405-own", "20260102-030405-own-2"]
    assert [json.loads((run / "run.json").read_text())["cause"] for run in runs] == ["finished"] * 2
