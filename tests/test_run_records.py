"""What is said of runs by their records: damaged ones, of other machines, and of thousands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import click
import pytest
from click.testing import CliRunner, Result
from ddpfix.launchers.backends.command import Command
from ddpfix.launchers.cli.runs import attach, status, stop
from ddpfix.launchers.running.machine import ProcessPlace, this_place
from ddpfix.launchers.running.output_monitor import last_progress
from ddpfix.launchers.running.run_record import RunRecord, initial_content, process_start_time
from ddpfix.launchers.running.runner import LOG, run
from faults import alive

LAST = {"step": 5, "steps": 6, "loss": 0.25}


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of all runs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "ddpfix" / "runs"
    folder.mkdir(parents=True)
    return folder


def ended(folder: Path, exit_status: int = 0, cause: str = "finished") -> Path:
    """A run that has ended; its record."""
    folder.mkdir()
    record = RunRecord(folder / "run.json", initial_content(Command(("true",), {}), "1", {}))
    record.update(attempts=[LAST | {"losses": [[0.1, 1, 0.5]] * 1000}])
    record.close(exit_status=exit_status, cause=cause)
    (folder / LOG).write_text("the log\n")
    return folder / "run.json"


def call(command: click.Command, *words: str) -> Result:
    return CliRunner().invoke(command, words, catch_exceptions=False, standalone_mode=False)


# --- one that is damaged ---

DAMAGED: dict[str, bytes] = {
    "empty": b"",
    "cut off": b'{\n  "schema": 1,\n  "cause": "fin',
    "no text": b"\xff\xfe\x00",
    "a list": b"[]",
    "nested": b"[" * 200_000,
    "no cause": b'{"exit_status": 0}',
    "a cause that is a number": b'{"cause": 1, "exit_status": 0}',
    "a status that is text": b'{"cause": "finished", "exit_status": "0"}',
    "a status that is NaN": b'{"cause": "finished", "exit_status": NaN}',
    "a launcher that is everybody": b'{"cause": "running", "exit_status": null, '
    b'"launcher": {"pid": -1, "started": 1}}',
    "a launcher that is text": b'{"cause": "running", "exit_status": null, "launcher": "me"}',
    "a step below 0": b'{"cause": "x", "exit_status": 0, "progress": {"attempts": -1}}',
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_record_costs_itself_alone(content: bytes, runs: Path) -> None:
    ended(runs / "a")
    ended(runs / "b", 3, "failed with exit status 3")
    damaged = ended(runs / "c")
    damaged.write_bytes(content)

    told = call(status)
    lines = [line.split(";")[0] for line in told.stdout.splitlines()]
    progress = "step 5 of 6, loss 0.25"
    assert lines == [f"a: finished, {progress}", f"b: failed with exit status 3, {progress}"]
    told = call(status, "--json")
    assert [facts["run"] for facts in json.loads(told.stdout)] == ["a", "b"]
    followed = call(attach)
    assert (followed.return_value, followed.stdout) == (3, "the log\n")
    stopped = call(stop)
    assert stopped.stdout.startswith("b: failed with exit status 3")
    for result in (told, followed, stopped):
        [line] = result.stderr.splitlines()
        assert line.startswith(f"ddpfix: {damaged}: cannot be read: ")


def test_a_record_that_is_no_file_is_not_waited_for(runs: Path) -> None:
    ended(runs / "a")
    for make in (os.mkfifo, os.mkdir, lambda path: Path(path).symlink_to("run.json")):
        record = ended(runs / "b")
        record.unlink()
        make(record)
        told = call(status)
        assert told.stdout.startswith("a: finished")
        assert str(record) in told.stderr
        subprocess.run(["rm", "-r", str(runs / "b")], check=True)


def test_a_folder_that_is_claimed_and_empty_is_no_run(runs: Path) -> None:
    ended(runs / "a")
    (runs / "b").mkdir()
    (runs / "c").write_text("a file")
    told = call(status)
    assert told.stderr == ""
    assert [line[:2] for line in told.stdout.splitlines()] == ["a:"]


# --- one of another machine ---


def changed(**fields: str) -> ProcessPlace:
    return attrs.evolve(this_place(), **fields)


ELSEWHERE = {
    "another machine": (changed(host="far", boot="b-o-o-t"), "on far"),
    "another machine with its container": (
        changed(host="far", boot="b-o-o-t", pid_namespace="pid:[1]"),
        "on far",
    ),
    "another container": (
        changed(host="box", pid_namespace="pid:[1]"),
        "in another container of box",
    ),
}


@pytest.fixture
def sleeper() -> Iterator[int]:
    """A process of this machine that has the number of a launcher elsewhere."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield child.pid
    child.kill()
    child.communicate()


def running(folder: Path, pid: int, place: ProcessPlace) -> None:
    """A run that, by its record, goes on in a process of a place."""
    record = json.loads(ended(folder).read_text())
    launcher = {"pid": pid, "started": process_start_time(pid), **attrs.asdict(place)}
    record |= {"cause": "running", "exit_status": None, "end": None, "launcher": launcher}
    (folder / "run.json").write_text(json.dumps(record, indent=2))


needs_boot = pytest.mark.skipif(
    None in attrs.astuple(this_place()), reason="no boot id or process namespaces under /proc here"
)


@needs_boot
@pytest.mark.parametrize(("place", "where"), ELSEWHERE.values(), ids=ELSEWHERE.keys())
def test_a_run_elsewhere_is_neither_killed_nor_stopped(
    place: ProcessPlace, where: str, runs: Path, sleeper: int
) -> None:
    running(runs / "a", sleeper, place)
    [facts] = json.loads(call(status, "--json").stdout)
    assert (facts["state"], facts["host"]) == (f"running elsewhere, {where}", place.host)
    done = subprocess.run(
        [sys.executable, "-m", "ddpfix", "stop"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    folder = runs / "a"
    assert done.stderr == (
        f"ddpfix: {folder}: the run is {where}: stop it from there, with `ddpfix stop {folder}`\n"
    )
    assert alive(sleeper)


@needs_boot
def test_a_run_from_before_the_machine_was_started_again_is_over(runs: Path, sleeper: int) -> None:
    running(runs / "a", sleeper, changed(boot="b-o-o-t", pid_namespace="pid:[1]"))
    assert call(status).stdout.startswith("a: its launcher was killed;")
    assert call(stop).stdout.startswith("a: its launcher was killed;")
    assert alive(sleeper)


def test_a_run_of_here_and_one_of_an_unknown_place_are_known_by_their_process(
    runs: Path, sleeper: int
) -> None:
    running(runs / "a", sleeper, this_place())
    running(runs / "b", sleeper, ProcessPlace())
    running(runs / "c", 2**22 + 1, this_place())  # above the largest process id
    states = [line.split(", ")[0] for line in call(status).stdout.splitlines()]
    assert [state.split(";")[0] for state in states] == [
        "a: running",
        "b: running",
        "c: its launcher was killed",
    ]


def test_a_record_says_where_its_launcher_is(tmp_path: Path) -> None:
    run(Command((sys.executable, "-c", ""), {}), tmp_path / "out")
    launcher = json.loads((tmp_path / "out" / "run.json").read_text())["launcher"]
    own = {"pid": os.getpid(), "started": process_start_time(os.getpid())}
    assert launcher == own | attrs.asdict(this_place())
    assert launcher["host"] == os.uname().nodename


# --- many ---

COUNT = """
import sys
opened = []
sys.addaudithook(lambda event, args: event == "open" and opened.append(str(args[0])))
from ddpfix.launchers.cli.runs import status
status([], standalone_mode=False)
of_runs = [path for path in opened if path.startswith(sys.argv[1])]
print(len(of_runs), sum(path.endswith("log.txt") for path in of_runs), file=sys.stderr)
"""


def test_a_run_that_has_ended_is_told_of_by_one_read_of_one_file(runs: Path) -> None:
    for number in range(30):
        ended(runs / f"{number:02}")
    running(runs / "30", 2**22 + 1, this_place())
    (runs / "30" / LOG).write_text("loss 0.75\n" * 9 + "\r40%|##  | 2/5 [00:01<00:01]")
    command = [sys.executable, "-c", COUNT, str(runs)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 31
    assert "30: its launcher was killed, step 2 of 5, loss 0.75" in done.stdout
    assert done.stderr == "32 1\n"  # a record each, and the log of the one that has not ended


def test_a_record_without_a_head_is_read_as_a_whole(runs: Path) -> None:
    """Such as one whose fields are in another order."""
    record = ended(runs / "a", 1, "failed")
    content = json.loads(record.read_text())
    record.write_text(json.dumps(dict(sorted(content.items())), indent=2))
    assert call(status).stdout.startswith("a: failed, step 5 of 6, loss 0.25; ")


BAR = b"40%|##  | 2/5 [00:01<00:01]"
TEXTS: dict[str, tuple[bytes, tuple[int | None, int | None, float | None]]] = {
    "nothing": (b"hello\n", (None, None, None)),
    "both on one line": (b"epoch 0 loss 0.5: " + BAR, (2, 5, 0.5)),
    "the last of several": (
        b"loss 3: " + BAR + b"\r" + BAR.replace(b"2/", b"3/") + b"\nloss 2\nloss 1\n",
        (3, 5, 1.0),
    ),
    "words that are neither": (BAR + b"\nloss=1\n50%| is much, no loss at all\n", (2, 5, 1.0)),
}


@pytest.mark.parametrize(("text", "found"), TEXTS.values(), ids=TEXTS.keys())
def test_the_last_progress_in_a_log_is(text: bytes, found: tuple[Any, ...]) -> None:
    assert last_progress(text) == found
