"""Streams that are closed, readers and terminals that go, signals at odd moments: the truth."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ddpfix.launchers.cli.launch as launch_module
import pytest
from click.testing import CliRunner
from ddpfix.cli import ddpfix
from ddpfix.errors import InputError
from ddpfix.launchers.backends.command import Command
from ddpfix.launchers.running.runner import Attempt, RunOutcome, run
from ddpfix.launchers.running.signals import SignalForwarder
from launched import RECIPE
from waiting import until

# Says that it is there, waits for leave if told to, prints, and ends with the given status.
SCRIPT = """
import os, sys, time
status, *gate = sys.argv[sys.argv.index("--end") + 1].split(",")
print("begun", flush=True)
open("begun", "w").close()
while gate and not os.path.exists("go"):
    time.sleep(0.02)
for stream in (sys.stdout, sys.stderr):
    print("a line of output", file=stream, flush=True)
sys.exit(int(status))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own.toml").write_text(RECIPE)
    (tmp_path / "run.py").write_text(SCRIPT)
    return tmp_path


def words(end: str) -> list[str]:
    recipe = ["--recipe", "./own.toml", "--script", "run.py", "--cpu", "--processes", "1"]
    launch = [sys.executable, "-m", "ddpfix", "launch", *recipe, "--output", "out"]
    return [*launch, "--", "--end", end]


def start(folder: Path, command: list[str], **more: Any) -> subprocess.Popen[bytes]:
    environ = os.environ | {"XDG_STATE_HOME": str(folder / "state")}
    streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    return subprocess.Popen(command, cwd=folder, env=environ, **(streams | more))


def record(folder: Path) -> dict[str, Any]:
    content = json.loads((folder / "out" / "run.json").read_text())
    assert isinstance(content, dict)
    return content


def assert_told(folder: Path, status: int) -> None:
    """The record tells this status, and the log is whole."""
    told = record(folder)
    cause = f"failed with exit status {status}" if status else "finished"
    assert (told["exit_status"], told["cause"]) == (status, cause)
    log = (folder / "out" / "log.txt").read_text()
    assert log.count("a line of output\n") == 2
    assert not list((folder / "out").glob("*.part"))


# --- closed from the start, full, or without a reader ---


@pytest.mark.parametrize("status", [0, 3])
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_change_neither_status_nor_record(
    closed: str, status: int, folder: Path
) -> None:
    launcher = start(folder, ["sh", "-c", f'exec "$0" "$@" {closed}', *words(str(status))])
    assert launcher.wait() == status
    assert_told(folder, status)


@pytest.mark.skipif(
    not os.access("/dev/full", os.W_OK), reason="needs /dev/full, a disk that is always full"
)
@pytest.mark.parametrize("status", [0, 3])
def test_streams_into_a_full_disk_change_nothing_either(status: int, folder: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        launcher = start(folder, words(str(status)), stdout=full, stderr=full)
    assert launcher.wait() == status
    assert_told(folder, status)


@pytest.mark.parametrize("status", [0, 3])
@pytest.mark.parametrize("streams", [("stderr",), ("stdout", "stderr")])
def test_a_reader_that_has_gone_changes_nothing_either(
    streams: tuple[str, ...], status: int, folder: Path
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    launcher = start(folder, words(str(status)), **dict.fromkeys(streams, writer))
    os.close(writer)
    assert launcher.wait() == status
    assert_told(folder, status)


# --- the terminal goes ---


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Both sides of a new terminal."""
    try:
        ours, theirs = pty.openpty()
    except OSError as error:
        pytest.skip(f"no terminal can be made here: {error}")
    yield ours, theirs
    for descriptor in (ours, theirs):
        try:
            os.close(descriptor)
        except OSError:
            continue


def start_in_terminal(
    folder: Path, theirs: int, end: str, *, nohup: bool
) -> subprocess.Popen[bytes]:
    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)

    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    launcher = start(folder, words(end), **streams, preexec_fn=take_terminal)
    os.close(theirs)
    until((folder / "begun").exists, launcher)
    return launcher


@pytest.mark.parametrize("status", [0, 3])
def test_a_run_that_ignores_the_hangup_survives_its_terminal(
    status: int, folder: Path, terminal: tuple[int, int]
) -> None:
    ours, theirs = terminal
    launcher = start_in_terminal(folder, theirs, f"{status},waits", nohup=True)
    os.close(ours)
    (folder / "go").touch()
    assert launcher.wait() == status
    assert_told(folder, status)


def test_another_run_is_stopped_by_the_hangup(folder: Path, terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    launcher = start_in_terminal(folder, theirs, "0,waits", nohup=False)
    os.close(ours)
    assert launcher.wait() == 128 + signal.SIGHUP
    told = record(folder)
    assert (told["exit_status"], told["cause"]) == (128 + signal.SIGHUP, "stopped by SIGHUP")


# --- signals before, between and after attempts ---


def test_a_signal_between_two_attempts_ends_the_run_before_the_second(tmp_path: Path) -> None:
    command = Command((sys.executable, "-c", "raise SystemExit(3)"), {})

    def next_attempt(_: RunOutcome) -> Attempt:
        os.kill(os.getpid(), signal.SIGTERM)
        return Attempt(command)

    outcome = run(command, tmp_path / "out", next_attempt=next_attempt)
    assert (outcome.status, outcome.cause) == (143, "stopped by SIGTERM")
    told = record(tmp_path)
    assert (told["exit_status"], told["cause"]) == (143, "stopped by SIGTERM")
    assert [attempt["exit_status"] for attempt in told["attempts"]] == [3]


def test_a_failure_of_the_launcher_itself_is_recorded(tmp_path: Path) -> None:
    def next_attempt(_: RunOutcome) -> None:
        raise LookupError("of the launcher")

    command = Command((sys.executable, "-c", "raise SystemExit(3)"), {})
    with pytest.raises(LookupError):
        run(command, tmp_path / "out", next_attempt=next_attempt)
    told = record(tmp_path)
    assert told["exit_status"] == 1
    assert told["cause"] == "its launcher failed: LookupError('of the launcher')"


def test_once_a_run_is_recorded_signals_no_longer_change_the_status() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        with SignalForwarder(1.0):
            assert signal.getsignal(signal.SIGTERM) is not before[signal.SIGTERM]
        assert {number: signal.getsignal(number) for number in numbers} == before
        with SignalForwarder(1.0, last=True):
            pass
        assert {signal.getsignal(number) for number in numbers} == {signal.SIG_IGN}
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_ctrl_c_before_the_run_begins_ends_with_130(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(launch_module, "prepare", interrupted)
    recipe, script = str(folder / "own.toml"), str(folder / "run.py")
    result = CliRunner().invoke(ddpfix, ["launch", "--recipe", recipe, "--script", script, "--cpu"])
    assert result.exit_code == 130


@pytest.mark.parametrize(("raised", "status"), [(KeyboardInterrupt, 130), (InputError, 2)])
def test_the_status_is_the_same_where_nobody_reads_the_last_line(
    raised: type[BaseException], status: int
) -> None:
    program = (
        "import ddpfix.cli, sys; from ddpfix.errors import InputError\n"
        f"def interrupted(*_): raise {raised.__name__}('no')\n"
        "ddpfix.cli.importlib.import_module = interrupted\n"
        "sys.argv = ['ddpfix', 'status']; ddpfix.cli.main()"
    )
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run([sys.executable, "-c", program], stdout=writer, stderr=writer)
    os.close(writer)
    assert ended.returncode == status
