"""Processes that hide from their launcher, and launchers that die: nobody is left, all is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ddpfix.launchers.running.descent import (
    descendants,
    end_all,
    process_table,
    set_child_subreaper,
)
from ddpfix.launchers.running.record_completion import LAUNCHER_KILLED, complete_record
from launched import RECIPE
from waiting import DEADLINE, ends, until

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="orphans are adopted on Linux only"
)

# Each process writes its id into a file of its own; FATES, a word for each rank, says what a rank
# does then. What a daemon does it does in a session of its own, with nothing in its environment.
RANK = r"""
import os, signal, sys, time

here, rank = sys.argv[sys.argv.index("--here") + 1], os.environ.get("RANK", "0")
DAEMON = "import os, signal, sys, time\n" + (
    "for number in (1, 2, 15): signal.signal(number, signal.SIG_IGN)\n"
    "with open(sys.argv[1] + '.part', 'w') as file: file.write(str(os.getpid()))\n"
    "os.rename(sys.argv[1] + '.part', sys.argv[1])\n"
    "while True: time.sleep(1)\n"
)


def present(name):
    with open(os.path.join(here, name + ".part"), "w") as file:
        file.write(str(os.getpid()))
    os.rename(os.path.join(here, name + ".part"), os.path.join(here, name))


def daemon(name):
    if os.fork():
        return os.wait()
    os.setsid()
    if os.fork():
        os._exit(0)
    os.execve(sys.executable, [sys.executable, "-c", DAEMON, os.path.join(here, name)], {})


fate = sys.argv[sys.argv.index("--fates") + 1].split(",")[int(rank)]
if "deaf" in fate:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
if "daemon" in fate:
    daemon("daemon" + rank)
    while not os.path.exists(os.path.join(here, "daemon" + rank)):
        time.sleep(0.02)
present("rank" + rank)
while "ends" not in fate:
    time.sleep(0.02)
"""


class Place:
    """A folder to launch ranks from."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.here, self.out = folder, folder / "here", folder / "out"
        self.here.mkdir()
        (folder / "own.toml").write_text(RECIPE)
        (folder / "run.py").write_text(RANK)
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *fates: str, options: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        """Launch one rank for each of the fates, and wait until all of them are there."""
        command = [sys.executable, "-m", "ddpfix", "launch", "--cpu"]
        command += ["--recipe", str(self.folder / "own.toml")]
        command += ["--script", str(self.folder / "run.py"), "--output", str(self.out)]
        command += ["--processes", str(len(fates)), *options]
        command += ["--", "--here", str(self.here), "--fates", ",".join(fates)]
        launcher = subprocess.Popen(
            command,
            cwd=self.folder,  # where a core may be dumped
            env=os.environ | {"XDG_STATE_HOME": str(self.folder / "state")},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.started.append(launcher)
        until(lambda: self.out.joinpath("run.json").exists(), launcher)
        names = [f"rank{rank}" for rank in range(len(fates))]
        names += [f"daemon{rank}" for rank, fate in enumerate(fates) if "daemon" in fate]
        if not any("ends" in fate for fate in fates):
            until(lambda: {*names} <= {path.name for path in self.here.iterdir()}, launcher)
        return launcher

    def pids(self) -> list[int]:
        """The processes that ranks and daemons have said to be."""
        return [int(path.read_text()) for path in self.here.glob("*[0-9]")]

    def left(self, seconds: float = DEADLINE) -> list[int]:
        """Those of them that do not end in so many seconds."""
        return [pid for pid in self.pids() if not ends(pid, seconds)]

    def record(self) -> dict[str, Any]:
        content = json.loads((self.out / "run.json").read_text())
        assert isinstance(content, dict)
        return content

    def guardian(self, launcher: subprocess.Popen[bytes]) -> int:
        """The process id of the launcher's guardian."""
        [pid] = [
            pid
            for pid in descendants(launcher.pid)
            if b"guardian_process" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        return pid


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    for launcher in place.started:
        launcher.kill()
        launcher.wait()
    for pid in place.pids():
        if not ends(pid, seconds=0):
            os.kill(pid, signal.SIGKILL)


# --- the launcher is killed ---


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGQUIT])
def test_deaf_ranks_and_hidden_daemons_end_with_a_killed_launcher(
    number: signal.Signals, place: Place
) -> None:
    options = ("--backend", "direct")
    launcher = place.start("deaf", "deaf daemon", options=options)
    launcher.send_signal(number)
    assert launcher.wait() == -number
    assert place.left() == []
    until(lambda: place.record()["cause"] == LAUNCHER_KILLED)
    record = place.record()
    assert record["exit_status"] is None
    assert record["start"] < record["end"]
    assert record["left_behind"] >= 3
    assert not list(place.out.glob("*.part"))


def test_ranks_of_accelerate_end_with_a_killed_launcher(place: Place) -> None:
    launcher = place.start("deaf", "daemon")
    launcher.kill()
    launcher.wait()
    assert place.left() == []
    until(lambda: place.record()["cause"] == LAUNCHER_KILLED)


def test_a_guardian_outlives_signals_that_are_not_meant_for_it(place: Place) -> None:
    launcher = place.start("stays")
    guardian = place.guardian(launcher)
    assert os.getsid(guardian) == guardian
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        os.kill(guardian, number)
    launcher.terminate()
    assert launcher.wait() == 128 + signal.SIGTERM
    assert ends(guardian)
    assert place.record()["cause"] == "stopped by SIGTERM"


# --- the run ends by itself ---


def test_a_daemon_without_environment_does_not_outlive_the_run(place: Place) -> None:
    launcher = place.start("daemon ends")
    assert launcher.wait() == 0
    assert len(place.pids()) == 2
    assert place.left(seconds=0) == []
    record = place.record()
    assert (record["cause"], record["left_behind"]) == ("finished", 1)


def test_signals_that_are_ignored_by_ranks_are_as_before(place: Place) -> None:
    launcher = place.start("deaf daemon", options=("--grace", "0.5"))
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait() == 128 + signal.SIGINT
    assert place.left(seconds=0) == []


# --- the guardian is killed ---


def test_a_run_without_its_guardian_is_ended_and_says_so(place: Place) -> None:
    launcher = place.start("deaf", "daemon", options=("--backend", "direct", "--max-restarts", "2"))
    guardian = place.guardian(launcher)
    os.kill(guardian, signal.SIGKILL)
    assert launcher.wait() == 128 + signal.SIGKILL
    assert place.left(seconds=0) == []
    record = place.record()
    assert record["cause"] == "its guardian was killed by SIGKILL"
    assert record["exit_status"] == 128 + signal.SIGKILL
    assert len(record["attempts"]) == 1


def test_a_stopped_guardian_delays_no_end(place: Place) -> None:
    launcher = place.start("stays")
    guardian = place.guardian(launcher)
    os.kill(guardian, signal.SIGSTOP)
    launcher.terminate()
    assert launcher.wait() == 128 + signal.SIGTERM
    assert ends(guardian)


# --- its parts ---


def test_an_orphan_is_adopted_and_found_below_its_new_parent() -> None:
    before = set_child_subreaper(True)
    try:
        code = "from subprocess import *; print(Popen(['sleep', '1000'], stdout=DEVNULL).pid)"
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        orphan = int(done.stdout)
        assert process_table()[orphan].parent == os.getpid()
        assert orphan in descendants(os.getpid())

        def members() -> list[int]:
            return [pid for pid in descendants(os.getpid()) if pid == orphan]

        assert end_all(members, grace=60) == 1
        assert os.waitpid(orphan, 0) == (orphan, signal.SIGTERM)
    finally:
        set_child_subreaper(before)


def test_a_stopped_process_can_end_within_its_grace() -> None:
    sleeper = subprocess.Popen(["sleep", "1000"])
    sleeper.send_signal(signal.SIGSTOP)

    def members() -> list[int]:
        return [pid for pid in descendants(os.getpid()) if pid == sleeper.pid]

    assert end_all(members, grace=60) == 1
    assert sleeper.wait() == -signal.SIGTERM


RECORD = {"run_id": "mine", "end": None, "exit_status": None, "cause": "running"}


@pytest.mark.parametrize(
    ("content", "run_id"),
    [
        (RECORD | {"end": "2030", "cause": "finished", "exit_status": 0}, "mine"),
        (RECORD, "another"),
        ([], "mine"),
    ],
)
def test_only_an_open_record_of_the_same_run_is_completed(
    content: object, run_id: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(content))
    complete_record(path, run_id, 0)
    assert json.loads(path.read_text()) == content


def test_an_open_record_is_completed_in_the_room_that_was_reserved(tmp_path: Path) -> None:
    path, spare = tmp_path / "run.json", tmp_path / "run.json.part"
    path.write_text(json.dumps(RECORD))
    spare.write_bytes(bytes(1 << 17))
    complete_record(path, "mine", 3)
    content = json.loads(path.read_text())
    assert (content["cause"], content["left_behind"]) == (LAUNCHER_KILLED, 3)
    assert not spare.exists()
    complete_record(tmp_path / "none" / "run.json", "mine", 0)  # no run, no record
