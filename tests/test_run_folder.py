"""Each run has a folder of its own, also where several are launched at the same moment."""

from __future__ import annotations

from datetime import datetime, tzinfo
from pathlib import Path

import pytest
from at_once import AT_ONCE, ROUNDS, all_at_once, claims, records
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


def test_the_folder_is_claimed_by_the_launch_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two launches that were prepared in one second, before either of them had begun."""

    class AlwaysNow(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> AlwaysNow:
            return cls(2026, 1, 2, 3, 4, 5, tzinfo=tz)

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(run_folder, "datetime", AlwaysNow)
    (tmp_path / "own.toml").write_text(RECIPE)
    (tmp_path / "run.py").write_text("")

    recipe = load(str(tmp_path / "own.toml"))
    asked = PlanOptions(recipe, tmp_path / "run.py", GpuRequest(), cpu=True, processes=1)
    options = LaunchOptions(asked, SupervisionPolicy(), Nodes())
    prepared = [prepare(options, print) for _ in range(2)]
    assert not (tmp_path / "state").exists()
    claimed = [each.with_claimed_folder() for each in prepared]
    names = ["20260102-030405-own", "20260102-030405-own-2"]
    assert [each.folder.name for each in claimed] == names
    for each in claimed:
        assert each.own.is_dir()
        assert str(each.folder / "made") in each.command.argv
