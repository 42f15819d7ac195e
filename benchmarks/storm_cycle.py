"""One cycle of a storm: launch ranks, do them harm, and count what is left (see storm.py)."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ddpfix.launchers.running.descent import descendants, process_table, send
from ddpfix.launchers.running.record_completion import LAUNCHER_KILLED

KINDS = ("orphans", "untrue records", "wrong statuses", "left-over files")
FILES = {"run.json", "log.txt", "ranks", "made", "launcher.log"}
"""What a run may leave in its folder."""

TORCH_CACHE = "torchinductor_"
"""How the cache begins that torch makes for a user, for all runs, once it imports torch._dynamo."""

RANK = Path(__file__).with_name("storm_rank.py")
RECIPE = """\
description = "for a storm"
family = "storm"
script = "run.py"
task = "to be harmed"
[flags]
train_batch = "--batch"
eval_batch = "--eval_batch"
accumulation = "--accumulation"
output = "--out"
[batch]
global_batch = 16
per_device_cap = 8
eval_per_device = 8
[data]
folder = "."
files = {}
[output]
folder = "made"
"""

_own_children: set[int] = set()
"""The processes that this one has started, which Popen collects."""


class Harm(NamedTuple):
    """What one cycle does; `moment` is in seconds, from the start or once the ranks are there."""

    backend: str
    world: int
    behaviour: str
    streams: str
    signal: str
    target: str
    early: bool
    moment: float
    grace: float


class Cycle:
    """One launch in a folder of its own."""

    def __init__(self, folder: Path, harm: Harm, deadline: float) -> None:
        self.folder, self.harm, self._deadline = folder, harm, deadline
        self.out = folder / "out"
        self.sent = ""
        self.counted: dict[str, list[str]] = {}

    def run(self) -> None:
        """Launch, harm, wait, and count."""
        for name in ("here", "tmp", "cwd"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "own.toml").write_text(RECIPE)
        shutil.copy(RANK, self.folder / "run.py")
        launcher, close_terminal = self._start()
        _own_children.add(launcher.pid)
        try:
            self._do_harm(launcher, close_terminal)
            ended = self._wait(lambda: launcher.poll() is not None)
            if not ended:
                self._count("wrong statuses", "the launcher does not end")
                launcher.kill()
                launcher.wait()
        finally:
            close_terminal()
        self._wait(lambda: not descendants(os.getpid()))
        self._count_orphans()
        self.judge(launcher.returncode)
        self.count_files()

    def _start(self) -> tuple[subprocess.Popen[bytes], Callable[[], None]]:
        harm, streams = self.harm, dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
        words = [sys.executable, "-m", "ddpfix", "launch", "--recipe", "../own.toml", "--cpu"]
        words += ["--script", "../run.py", "--output", str(self.out), "--grace", str(harm.grace)]
        words += ["--processes", str(harm.world)]
        words += [] if harm.backend == "none" else ["--backend", harm.backend]
        words += ["--", "--behave", harm.behaviour, "--here", str(self.folder / "here")]
        environ = os.environ | {
            "TMPDIR": str(self.folder / "tmp"),
            "XDG_STATE_HOME": str(self.folder / "state"),
        }
        if harm.streams in ("closed stdout", "closed stderr"):
            end = ">&-" if harm.streams == "closed stdout" else "2>&-"
            words = ["sh", "-c", f'exec "$0" "$@" {end}', *words]
        more: dict[str, Any] = {"cwd": self.folder / "cwd", "env": environ, **streams}
        if harm.streams == "reader gone":
            reader, writer = os.pipe()
            os.close(reader)
            launcher = subprocess.Popen(words, **more | {"stdout": writer, "stderr": writer})
            os.close(writer)
            return launcher, lambda: None
        if harm.streams not in ("terminal", "terminal gone"):
            return subprocess.Popen(words, **more), lambda: None
        ours, theirs = pty.openpty()

        def take_terminal() -> None:
            os.setsid()
            fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

        terminal = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
        launcher = subprocess.Popen(words, **more | terminal, preexec_fn=take_terminal)
        os.close(theirs)
        reader_process = subprocess.Popen(
            ["cat"], stdin=ours, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(ours)
        _own_children.add(reader_process.pid)

        def close_terminal() -> None:
            reader_process.kill()
            reader_process.wait()

        return launcher, close_terminal

    def _do_harm(
        self, launcher: subprocess.Popen[bytes], close_terminal: Callable[[], None]
    ) -> None:
        harm = self.harm
        here = self.folder / "here"
        if not harm.early:
            ready = [here / f"begun{rank}" for rank in range(harm.world)]
            self._wait(lambda: launcher.poll() is not None or all(path.exists() for path in ready))
        time.sleep(harm.moment)
        if harm.streams == "terminal gone" and launcher.poll() is None:
            close_terminal()
            self.sent = "HUP"
        elif harm.signal != "none" and launcher.poll() is None:
            target = self._target(launcher.pid)
            self.sent = harm.signal if target == launcher.pid else "elsewhere"
            send([target], getattr(signal, f"SIG{harm.signal}"))
            if harm.signal == "STOP" and target == launcher.pid:
                time.sleep(0.5)
                send([target], signal.SIGCONT)
        if not self.sent and harm.behaviour in ("hang", "deaf"):
            self.sent = "TERM"
            launcher.terminate()
        elif self.sent in ("elsewhere", "STOP") and not self._wait(
            lambda: launcher.poll() is not None, 5.0
        ):
            self.sent = "TERM"  # a rank that hangs, or has been stopped: somebody gives up
            launcher.terminate()

    def _target(self, launcher: int) -> int:
        """The process to signal; the launcher if there is none of the kind yet."""
        table = process_table()
        children = [pid for pid, state in table.items() if state.parent == launcher]
        guardians = [pid for pid in children if b"guardian_process" in _command(pid)]
        below = [pid for one in guardians for pid in descendants(one, table)]
        kinds = {
            "guardian": guardians,
            "back end": [pid for pid in below if table[pid].parent in guardians],
            "rank": [pid for pid in below if b"--behave" in _command(pid)][-1:],
        }
        return next(iter(kinds.get(self.harm.target) or [launcher]))

    def _wait(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        deadline = time.monotonic() + (self._deadline if seconds is None else seconds)
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
            _reap()
        return True

    def _count(self, kind: str, what: str) -> None:
        self.counted.setdefault(kind, []).append(what)

    def _count_orphans(self) -> None:
        for pid in descendants(os.getpid()):
            self._count("orphans", _command(pid).decode(errors="replace")[:200])
        while left := descendants(os.getpid()):
            send(left, signal.SIGKILL)
            time.sleep(0.05)
            _reap()

    def judge(self, code: int) -> None:
        """Compare the launcher's end, the record and what the ranks have done with each other."""
        path = self.out / "run.json"
        died = code < 0
        if not path.exists():
            # Before the run began: by the signal's own default action, or Ctrl-C in Python.
            if self.sent == "" or not (died or code == 130):
                self._count("wrong statuses", f"{code} without a run")
            return
        try:
            record = json.loads(path.read_text())
            status, cause, end = record["exit_status"], record["cause"], record["end"]
        except (ValueError, KeyError) as error:
            self._count("untrue records", repr(error))
            return
        self._judge_record(code, status, cause, end)
        number = getattr(signal, f"SIG{self.sent}", 0) if self.sent != "elsewhere" else 0
        done = len([*(self.folder / "here").glob("done*")])
        if cause == "finished" and done != self.harm.world:
            self._count("untrue records", f"finished, but {done} of {self.harm.world} ranks did")
        if died and not (self.sent and code == -number):
            self._count("wrong statuses", f"{code} after {self.sent or 'nothing'}")
        if not self.sent and self.harm.behaviour not in ("exit 3", "segv") and code:
            self._count("wrong statuses", f"{code} though nothing was wrong")
        expected = {"exit 3": 3, "segv": 139}.get(self.harm.behaviour)
        own = self.harm.backend in ("none", "direct")
        if not self.sent and expected and code != (expected if own else 1):
            self._count("wrong statuses", f"{code}, not {expected}")

    def _judge_record(self, code: int, status: int | None, cause: str, end: str | None) -> None:
        if end is None or cause == "running":
            self._count("untrue records", f"{cause!r} after the end")
        elif code < 0 and cause == LAUNCHER_KILLED:
            if status is not None:
                self._count("untrue records", f"status {status} of a killed launcher")
        elif code < 0:  # a signal after the record was closed, which no launcher survives
            if -code not in (signal.SIGKILL, signal.SIGSEGV, signal.SIGQUIT):
                self._count("untrue records", f"{cause!r}, but the launcher died of {-code}")
        elif status != code:
            self._count("untrue records", f"status {status}, but it was {code}")
        elif (cause == "finished") != (code == 0):
            self._count("untrue records", f"{cause!r} with status {code}")
        elif cause.startswith("stopped by SIG"):
            number = getattr(signal, cause.removeprefix("stopped by "))
            if code != 128 + number:
                self._count("untrue records", f"{cause!r} with status {code}")

    def count_files(self) -> None:
        """Count files where there are to be none."""
        places = {self.folder / "tmp": set[str](), self.folder / "cwd": set[str](), self.out: FILES}
        for place, allowed in places.items():
            found = {path.name for path in place.iterdir()} if place.is_dir() else set[str]()
            for name in sorted(found - allowed):
                if place.name == "tmp" and name.startswith(TORCH_CACHE):
                    continue
                self._count("left-over files", f"{place.name}/{name}")


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return b""


def _reap() -> None:
    """Collect orphans that have come here and ended; the launcher itself is Popen's to collect."""
    for pid, state in process_table().items():
        if state.parent == os.getpid() and state.ended and pid not in _own_children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
