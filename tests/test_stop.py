"""INT, TERM and HUP end verify, demo and a probe soon, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ddpfix.errors import InputError
from ddpfix.launchers.stop_signals import stop_if_signalled, unwinding
from ddpfix.launchers.verify.isolation_choice import choose_isolation
from launched import RECIPE
from sabotage import write

MARK = "STOP_TEST_OF"
PATIENCE = 300.0  # seconds until the first rank has started, and until everything has ended
MOST = 60.0  # seconds that an end may take on a slow machine; it is one or two. Unstopped: 600
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")

# Deaf to all signals that can be ignored; ends by itself after a while, should nobody stop it.
DEAF = """import signal, time
for name in ("SIGINT", "SIGTERM", "SIGHUP"):
    signal.signal(getattr(signal, name), signal.SIG_IGN)
time.sleep(600)
"""


def processes(mark: str) -> dict[int, bytes]:
    """The processes with this mark in their environment, and their command lines."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found[int(entry.name)] = (entry / "cmdline").read_bytes()
        except OSError:
            continue
    return found


def is_deaf(pid: int) -> bool:
    """Whether a process ignores all three signals."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    ignored = int(status.partition("SigIgn:")[2].split()[0], 16)
    return all(ignored >> (getattr(signal, name) - 1) & 1 for name in SIGNALS)


class Stopped:
    """A command in a folder of its own, to be stopped once a rank runs."""

    def __init__(self, folder: Path, *words: object, **variables: str) -> None:
        self.mark, self.temporary = str(folder), folder / "temporary"
        self.temporary.mkdir()
        self.output = folder / "output.txt"
        environment = {**os.environ, MARK: self.mark, "TMPDIR": str(self.temporary), **variables}
        with self.output.open("w") as output:
            self.child = subprocess.Popen(
                [sys.executable, "-m", "ddpfix", *map(str, words)],
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def wait_for_rank(self, words: bytes, *, deaf: bool = True) -> None:
        """Wait until a process runs whose command line has these words, and is deaf."""
        deadline = time.monotonic() + PATIENCE
        while not any(
            words in line and (is_deaf(pid) or not deaf)
            for pid, line in processes(self.mark).items()
        ):
            assert self.child.poll() is None, self.output.read_text()
            assert time.monotonic() < deadline, self.output.read_text()
            time.sleep(0.02)

    def stop(self, name: str) -> None:
        """Send a signal; status, processes and folders are as they should be soon."""
        number = getattr(signal, name)
        began = time.monotonic()
        self.child.send_signal(number)
        assert self.child.wait(PATIENCE) == 128 + number, self.output.read_text()
        seconds = time.monotonic() - began
        assert f"stopped by {name}" in self.output.read_text()
        while processes(self.mark) and time.monotonic() < began + PATIENCE:
            time.sleep(0.02)
        assert not processes(self.mark)
        left = [path.name for path in self.temporary.iterdir()]
        # torch's own cache of kernels, of all its processes of a user
        assert not [name for name in left if not name.startswith("torchinductor_")]
        assert seconds < MOST

    def close(self) -> None:
        for pid in processes(self.mark):
            os.kill(pid, signal.SIGKILL)
        self.child.wait()


@pytest.fixture
def begun() -> Iterator[list[Stopped]]:
    """Commands that are to be ended with the test."""
    commands: list[Stopped] = []
    yield commands
    for command in commands:
        command.close()


@pytest.mark.parametrize(
    ("isolation", "name"), [*(("overlay", name) for name in SIGNALS), ("copy", "SIGTERM")]
)
def test_verify_ends_at_a_signal(
    isolation: str, name: str, tmp_path: Path, begun: list[Stopped]
) -> None:
    script, arguments = write(tmp_path / "small")
    try:
        choose_isolation(isolation, script, arguments, tmp_path)
    except InputError as error:
        pytest.skip(str(error))
    script.write_text(DEAF + script.read_text())
    options = ("--isolation", isolation, "--timeout", "200")
    begun.append(Stopped(tmp_path, "verify", script, *options, "--", *arguments))
    begun[0].wait_for_rank(b"ddpfix.launchers.trace")
    begun[0].stop(name)


def test_the_demo_ends_at_a_signal(tmp_path: Path, begun: list[Stopped]) -> None:
    begun.append(Stopped(tmp_path, "demo"))
    begun[0].wait_for_rank(b"ddpfix.launchers.trace", deaf=False)
    begun[0].stop("SIGTERM")


@pytest.mark.parametrize("name", SIGNALS)
def test_a_probe_ends_at_a_signal(name: str, tmp_path: Path, begun: list[Stopped]) -> None:
    text = RECIPE.replace("files = {}", 'files = { "--data" = "data.txt" }\ntrain = "--data"')
    (tmp_path / "own.toml").write_text(text.replace('"--out"', '"--out"\nepochs = "--epochs"'))
    (tmp_path / "data.txt").write_text("x\n" * 160)
    (tmp_path / "run.py").write_text(DEAF)
    words = ("plan", "--recipe", "own.toml", "--cpu", "--processes", "2", "--probe", "3")
    begun.append(Stopped(tmp_path, *words, XDG_STATE_HOME=str(tmp_path / "state")))
    begun[0].wait_for_rank(b"probe_worker")
    begun[0].stop(name)


def test_a_signal_that_a_run_has_handled_still_stops() -> None:
    before = signal.getsignal(signal.SIGTERM)

    def command() -> None:
        with unwinding():
            handler = signal.signal(signal.SIGTERM, lambda *_: None)
            os.kill(os.getpid(), signal.SIGTERM)
            signal.signal(signal.SIGTERM, handler)
            stop_if_signalled()

    with pytest.raises(SystemExit) as stopped:
        command()
    assert stopped.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before
    stop_if_signalled()


def test_a_second_signal_does_not_disturb_what_is_cleaned_up() -> None:
    cleaned: list[bool] = []

    def command() -> None:
        with unwinding():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(PATIENCE)
            finally:
                os.kill(os.getpid(), signal.SIGINT)
                cleaned.append(True)

    with pytest.raises(SystemExit) as stopped:
        command()
    assert stopped.value.code == 128 + signal.SIGTERM
    assert cleaned
