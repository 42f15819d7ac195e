"""What a launch goes on with after an attempt that failed, decided without running anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from ddpfix.launchers.backends.command import Command
from ddpfix.launchers.planning.plan import solve
from ddpfix.launchers.running.failure import RunFailure
from ddpfix.launchers.running.oom_ladder import LaunchSettings
from ddpfix.launchers.running.recovery import RESUMABLE, RESUME, Recovery
from ddpfix.launchers.running.runner import RunOutcome
from ddpfix.recipes.load import load
from ddpfix.recipes.model import Recipe

RECIPE = """
description = "for tests"
family = "test"
script = "run.py"
task = "to be lowered"
[flags]
train_batch = "--batch"
accumulation = "--accumulation"
output = "--out"
[batch]
global_batch = 2
per_device_cap = 2
eval_per_device = 4
[data]
folder = "."
files = {}
[output]
folder = "made"
[arguments]
"--block" = 400
[out_of_memory]
"--block" = 100
"""
FULL = RunOutcome(1, "it failed", 1.0, 0, RunFailure(out_of_memory=True))
FAILED = RunOutcome(1, "it failed", 1.0, 0)


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    (tmp_path / "own.toml").write_text(RECIPE)
    return load(str(tmp_path / "own.toml"))


def recovery(
    recipe: Recipe, output: Path, told: list[dict[str, str | None]] | None = None
) -> Recovery:
    """What decides for a script that writes to ``output``; ``told`` gets what it is told."""

    def command(setting: LaunchSettings) -> Command:
        if told is not None:
            told.append(dict(setting.added_flags))
        return Command((), {})

    setting = LaunchSettings(recipe, solve(1, 2, 2), (), RESUMABLE | {"--block"})
    return Recovery(setting, command, output, lambda setting: None)


def test_checkpoints_of_another_model_are_moved_aside_each_to_a_folder_of_its_own(
    recipe: Recipe, tmp_path: Path
) -> None:
    output = tmp_path / "made"
    again = recovery(recipe, output)
    seen = []
    for attempt in ("batch 2", "batch 1", "block 200", "block 100"):
        output.mkdir(exist_ok=True)
        (output / "state.pt").write_text(attempt)
        assert (again(FULL) is None) is (attempt == "block 100")
        folders = sorted(tmp_path.glob("made*"))
        seen.append({folder.name: (folder / "state.pt").read_text() for folder in folders})
    assert seen == [
        {"made": "batch 2"},  # half the batch is the same training
        {"made.before-1": "batch 1"},
        {"made.before-1": "batch 1", "made.before-2": "block 200"},
        {"made": "block 100", "made.before-1": "batch 1", "made.before-2": "block 200"},
    ]


def test_another_model_begins_without_resuming_and_the_same_one_resumes(
    recipe: Recipe, tmp_path: Path
) -> None:
    told: list[dict[str, str | None]] = []
    again = recovery(recipe, tmp_path / "made", told)
    assert again(FULL) is not None
    assert again(FULL) is not None
    assert told == [{RESUME: None}, {}]


def test_an_attempt_that_failed_otherwise_is_repeated_so_many_times(
    recipe: Recipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = recovery(recipe, tmp_path / "made")
    again.restarts = 2
    assert [again(FAILED) is None for _ in range(3)] == [False, False, True]
    said = capsys.readouterr().err.splitlines()
    assert [line.rpartition(", ")[2] for line in said] == [
        "1 restart(s) left",
        "0 restart(s) left",
    ]


def test_nothing_is_lowered_for_who_asked_for_no_retry(recipe: Recipe, tmp_path: Path) -> None:
    again = recovery(recipe, tmp_path / "made")
    again.retry = False
    assert again(FULL) is None
