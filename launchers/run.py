"""Start a command, show and keep its output, pass signals on, and leave no process behind.

Torch elastic puts every rank into a session of its own, so the process group of the child alone
does not reach the ranks. All processes of a run carry its id in their environment, and on Linux
they are found by it in /proc, also when the launcher between has died and they are orphans.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import selectors
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import IO, Any, BinaryIO

import attrs

from .. import __version__
from ..errors import InputError
from .command import Command

MARK = "DDPFIX_RUN"
LOG = "log.txt"
RECORD = "run.json"
RECORDED_PACKAGES = ("accelerate", "numpy", "peft", "torch", "transformers")

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_POLL = 0.1  # seconds between looks at the child
_LEFTOVER_GRACE = 5.0  # seconds a process left behind has to end after SIGTERM
_FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP")


@attrs.frozen
class Outcome:
    """How a run ended.

    `status` is the exit status to pass on: the child's own, 128 + n when signal n ended it or the
    user stopped it with n. `cause` is the same in words. `left_behind` counts processes that
    outlived the child and were stopped.
    """

    status: int
    cause: str
    seconds: float
    left_behind: int


def default_folder(recipe: str, environ: Mapping[str, str] | None = None) -> Path:
    """A run folder not yet there: STATE/ddpfix/runs/<time>-<recipe>.

    STATE is $XDG_STATE_HOME if that is an absolute path, else ~/.local/state (XDG Base Directory
    Specification 0.8).
    """
    environ = os.environ if environ is None else environ
    state = Path(environ.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():
        state = Path.home() / ".local" / "state"
    name = f"{datetime.now():%Y%m%d-%H%M%S}-{recipe}"
    runs = state / "ddpfix" / "runs"
    folder, count = runs / name, 1
    while folder.exists():
        count += 1
        folder = runs / f"{name}-{count}"
    return folder


def check_folder(folder: Path) -> None:
    """Raise InputError if `folder` cannot become a run folder; create nothing."""
    if (folder / RECORD).exists():
        raise InputError(f"{folder}: holds the record of another run; choose another --output")
    existing = next(path for path in [folder, *folder.absolute().parents] if path.exists())
    if not existing.is_dir():
        raise InputError(f"{existing}: is no folder; choose another --output")
    if not os.access(existing, os.W_OK):
        raise InputError(f"{existing}: cannot be written to; choose another --output")


def run(
    command: Command,
    folder: Path,
    *,
    facts: Mapping[str, Any] | None = None,
    grace: float = 30.0,
    quiet: bool = False,
) -> Outcome:
    """Run `command` to its end; its output goes to the terminal and to `folder`/log.txt.

    `quiet` keeps it from the terminal.

    `folder`/run.json is written when the run starts and again when it ends; `facts` (plan, recipe,
    cards, anything JSON can hold) go into it. A first SIGINT, SIGTERM or SIGHUP is passed on and
    the run has `grace` seconds to end; a second one, or the end of the grace, kills all of it.
    When this process is killed, the child gets SIGTERM (Linux).

    Raises:
        InputError: the folder is no fit place, or the program cannot be started.

    """
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    run_id = uuid.uuid4().hex
    record = _Record(folder / RECORD, _opening(command, run_id, facts or {}))
    environment = command.environment(os.environ) | {MARK: run_id}
    began = time.monotonic()
    with (folder / LOG).open("ab", buffering=0) as log:
        try:
            child = subprocess.Popen(
                command.argv,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=_die_with_parent(),
            )
        except OSError as error:
            message = f"{command.argv[0]}: cannot be started: {error.strerror}"
            record.close(exit_status=2, cause=message)
            raise InputError(message) from None
        family = _Family(child, run_id)
        with _Stop(family, grace) as stop, _Tee(child, log, quiet) as tee:
            while child.poll() is None:
                tee.pump(_POLL)
                stop.escalate()
            left_behind = family.end()
            tee.drain()
    status, cause = _ending(child.returncode, stop.received)
    seconds = time.monotonic() - began
    record.close(
        exit_status=status, cause=cause, seconds=round(seconds, 3), left_behind=left_behind
    )
    return Outcome(status, cause, seconds, left_behind)


def _ending(returncode: int, received: int | None) -> tuple[int, str]:
    if returncode == 0:
        return 0, "finished"
    if received is not None:
        return 128 + received, f"stopped by {signal.Signals(received).name}"
    if returncode < 0:
        return 128 - returncode, f"killed by {signal.Signals(-returncode).name}"
    return returncode, f"failed with exit status {returncode}"


class _Family:
    """The child and everything it started, however deep, in whatever session."""

    def __init__(self, child: subprocess.Popen[bytes], run_id: str) -> None:
        self.child = child
        self._mark = f"{MARK}={run_id}".encode()

    def members(self) -> list[int]:
        """The living processes that carry the run's mark, without zombies."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            # Unreadable: another user's, or gone since the listing.
            with contextlib.suppress(OSError):
                if self._mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def signal_child(self, number: int) -> None:
        """Signal the child and its group: what Ctrl-C in its terminal would do."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.child.pid, number)

    def signal_all(self, number: int) -> int:
        members = self.members()
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        self.signal_child(number)
        return len(members)

    def end(self) -> int:
        """Stop whoever outlived the child: SIGTERM, then SIGKILL. Returns how many there were."""
        count = self.signal_all(signal.SIGTERM)
        deadline = time.monotonic() + _LEFTOVER_GRACE
        while self.members() and time.monotonic() < deadline:
            time.sleep(_POLL / 2)
        while self.signal_all(signal.SIGKILL):  # again, should one have forked meanwhile
            time.sleep(_POLL / 2)
        return count


class _Stop:
    """Passes signals on while the run lasts and sees to it that it ends."""

    def __init__(self, family: _Family, grace: float) -> None:
        self.received: int | None = None
        self._family = family
        self._grace = grace
        self._deadline = float("inf")
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Stop:
        if threading.current_thread() is threading.main_thread():
            for name in _FORWARDED:
                number = getattr(signal, name, None)
                # Ignored stays ignored: that is how nohup and `&` in a script ask for it.
                if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.received is None:
            self.received = number
            self._deadline = time.monotonic() + self._grace
            self._family.signal_child(number)
        else:
            self._deadline = 0.0

    def escalate(self) -> None:
        if time.monotonic() > self._deadline:
            self._family.signal_all(signal.SIGKILL)


class _Tee:
    """Copies the child's two streams, byte for byte as they come, to ours and to the log.

    Bytes, not lines: a progress bar ends in a carriage return for hours before its newline.
    """

    def __init__(
        self, child: subprocess.Popen[bytes], log: BinaryIO | IO[bytes], quiet: bool
    ) -> None:
        self._selector = selectors.DefaultSelector()
        for pipe, ours in ((child.stdout, sys.stdout), (child.stderr, sys.stderr)):
            assert pipe is not None
            self._selector.register(
                pipe, selectors.EVENT_READ, [log] if quiet else [log, ours.buffer]
            )

    def __enter__(self) -> _Tee:
        return self

    def __exit__(self, *_: object) -> None:
        for key in list(self._selector.get_map().values()):
            self._close(key.fileobj)
        self._selector.close()

    def pump(self, timeout: float) -> bool:
        """Copy what there is, waiting up to `timeout` seconds for it; whether there was any."""
        if not self._selector.get_map():
            time.sleep(timeout)
            return False
        ready = self._selector.select(timeout)
        for key, _ in ready:
            chunk = os.read(key.fd, 1 << 16)
            if not chunk:
                self._close(key.fileobj)
            for sink in list(key.data):
                if not _write(sink, chunk):
                    key.data.remove(sink)
        return bool(ready)

    def drain(self) -> None:
        """Copy the rest. All writers have ended, so what the pipes hold is all there will be."""
        while self._selector.get_map() and self.pump(_POLL):
            pass

    def _close(self, pipe: Any) -> None:
        self._selector.unregister(pipe)
        pipe.close()


def _write(sink: IO[bytes], chunk: bytes) -> bool:
    """Whether the sink took it: a reader that went away, or a full disk, ends no training."""
    try:
        sink.write(chunk)
        sink.flush()
    except BrokenPipeError:
        # Else the interpreter would complain, and exit with 120, when it flushes at its end.
        with contextlib.suppress(OSError), Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), sink.fileno())
        return False
    except (OSError, ValueError) as error:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"ddpfix: output is no longer copied to {sink.name}: {error}\n")
        return False
    return True


def _die_with_parent() -> Callable[[], None] | None:
    """What the child does before its exec, so that killing the launcher ends the run too."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def before_exec() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return before_exec


class _Record:
    """run.json, whole at any time."""

    def __init__(self, path: Path, content: dict[str, Any]) -> None:
        self._path = path
        self._content = content
        self._write()

    def close(self, **ending: Any) -> None:
        self._content |= {"end": _now(), **ending}
        try:
            self._write()
        except OSError as error:
            sys.stderr.write(f"ddpfix: {self._path}: {error.strerror}\n")

    def _write(self) -> None:
        beside = self._path.with_suffix(".json.part")
        text = json.dumps(self._content, indent=2) + "\n"
        beside.write_text(text, encoding="utf-8")
        beside.replace(self._path)


def _opening(command: Command, run_id: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "schema": 1,
        "run_id": run_id,
        "argv": list(command.argv),
        "env": command.env,
        "unset": list(command.unset),
        "command": command.line,
        "replaced": list(command.replaced),
        "cwd": str(Path.cwd()),
        **facts,
        "versions": dict(_versions()),
        "start": _now(),
        "end": None,
        "exit_status": None,
        "cause": "running",
    }


def _versions() -> Iterator[tuple[str, str]]:
    yield "ddpfix", __version__
    yield "python", platform.python_version()
    yield "platform", platform.platform()
    for package in RECORDED_PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            yield package, metadata.version(package)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
