"""Runs that go on without a terminal, and what tells of them afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from faults import Place, alive


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def ddpfix(place: Place, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ddpfix", *words]
    return subprocess.run(
        command, cwd=place.folder, env=place.environ, capture_output=True, text=True
    )


def until(condition: Callable[[], bool]) -> None:
    for _ in range(3000):  # so that a failure does not hang the tests
        if condition():
            return
        time.sleep(0.02)
    pytest.fail("it never came about")


def facts(place: Place, *words: str) -> dict[str, Any]:
    """What status says of one run."""
    [told] = json.loads(ddpfix(place, "status", *words, "--json").stdout)
    assert isinstance(told, dict)
    return told


@pytest.fixture
def waiting(place: Place) -> Iterator[Path]:
    """The folder of a detached run of one process that waits in its third step."""
    options = ["--recipe", str(place.folder / "own.toml"), "--script", str(place.script)]
    place.environ["FAULT"] = "wait:0:3"
    done = ddpfix(place, "launch", *options, "--cpu", "--processes", "1", "--detach")
    assert done.returncode == 0, done.stderr
    [folder] = (place.folder / "state" / "ddpfix" / "runs").iterdir()
    assert f"ddpfix attach {folder}" in done.stderr
    until(lambda: facts(place)["step"] == 2)
    yield folder
    for pid in (pid_of(folder), int((place.here / "0").read_text())):
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


def pid_of(folder: Path) -> int:
    """The launcher's process id."""
    return int(json.loads((folder / "run.json").read_text())["launcher"]["pid"])


def test_a_detached_run_is_told_of_followed_and_ends_as_any_other(
    place: Place, waiting: Path
) -> None:
    told = facts(place, waiting.name[:8])
    assert (told["state"], told["step"], told["steps"], told["loss"]) == ("running", 2, 6, 0.5)
    assert told["exit_status"] is None

    command = [sys.executable, "-m", "ddpfix", "attach"]
    attached = subprocess.Popen(command, env=place.environ, stdout=subprocess.PIPE)
    assert attached.stdout
    shown = b""
    while b" 2/6" not in shown:
        shown += os.read(attached.stdout.fileno(), 1)
    (place.here / "go").touch()
    rest, _ = attached.communicate()
    assert b" 6/6" in rest
    assert attached.returncode == 0
    assert facts(place, str(waiting))["state"] == "finished"
    line = f"{waiting.name}: finished, step 6 of 6, loss 0.167; {waiting}\n"
    assert ddpfix(place, "status").stdout == line


def test_stop_ends_it_with_all_its_processes(place: Place, waiting: Path) -> None:
    rank = int((place.here / "0").read_text())
    done = ddpfix(place, "stop", str(waiting))
    assert f"{waiting.name}: stopped by SIGTERM, step 2 of 6" in done.stdout
    assert not alive(rank)
    assert not alive(pid_of(waiting))
    assert ddpfix(place, "attach").returncode == 128 + signal.SIGTERM
    assert ddpfix(place, "stop").stdout == done.stdout


def test_a_run_whose_launcher_was_killed_is_not_taken_for_running(
    place: Place, waiting: Path
) -> None:
    os.kill(pid_of(waiting), signal.SIGKILL)
    until(lambda: facts(place)["state"] == "its launcher was killed")
    assert ddpfix(place, "attach").returncode == 1


def test_what_is_wrong_is_one_line(place: Place) -> None:
    def complaint(*words: str) -> str:
        done = ddpfix(place, *words)
        assert (done.returncode, done.stdout) == (2, "")
        [line] = done.stderr.splitlines()
        return line

    assert "no runs in" in complaint("attach")
    assert "no run 'x' in" in complaint("stop", "x")
    assert "no run was launched there" in complaint("status", str(place.folder))
    runs = place.folder / "state" / "ddpfix" / "runs"
    for name in ("a-1", "a-2"):
        (runs / name).mkdir(parents=True)
        (runs / name / "run.json").write_text("{")
    assert "'a' fits several runs: a-1, a-2" in complaint("attach", "a")
    assert "run.json: cannot be read" in complaint("attach", "a-1")
    options = ["--recipe", str(place.folder / "own.toml"), "--script", str(place.script), "--cpu"]
    taken = ("--output", str(runs / "a-1"), "--detach")
    assert "holds the record of another run" in complaint("launch", *options, *taken)
