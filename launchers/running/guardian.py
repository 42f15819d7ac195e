"""The guardian of a run, a process that outlives the launcher: see `guardian_process`."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..gpus.locks import lock_descriptors
from .descent import can_signal, descendants, process_table, set_child_subreaper
from .guardian_process import HEADER

_CHUNK = 1 << 12  # bytes
_WAIT = 1.0  # seconds until a guardian that does not answer is looked at


class Guardian:
    """Starts the commands of a run in a process of its own, which ends them all if this one dies.

    `record` and `run_id` are those of the run, `grace` the seconds that the processes then have to
    end in.
    """

    def __init__(self, record: Path, run_id: str, grace: float) -> None:
        self._words = [str(record.absolute()), run_id, str(grace)]
        self._answers = b""

    def __enter__(self) -> Guardian:
        table = process_table()
        self._others = {pid for pid, state in table.items() if state.parent == os.getpid()}
        # If the guardian is killed, its orphans come here.
        self._adopts = set_child_subreaper(True)
        self._link, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-m", f"{__package__}.guardian_process"]
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), *self._words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # whoever reads ours need not wait for the guardian
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # signals of the terminal do not reach it
                pass_fds=(theirs.fileno(), *lock_descriptors()),
            )
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        with contextlib.suppress(OSError):
            if not failed:
                self._send("dismissed")
        self._link.close()
        self._continue()
        self._process.wait()
        set_child_subreaper(self._adopts)

    @property
    def death(self) -> str:
        """How the guardian died before its time, in words; empty while it lives."""
        code = self._process.poll()
        if code is None:
            return ""
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        return f"its guardian was {how}" if code < 0 else f"its guardian {how}"

    def start(
        self, argv: Sequence[str], env: Mapping[str, str], ends: Sequence[int]
    ) -> GuardedCommand:
        """Start a command that writes to two descriptors. Raises OSError if that is impossible."""
        with contextlib.suppress(BrokenPipeError):
            self._send({"argv": list(argv), "env": dict(env)}, ends)
        child = GuardedCommand(self)
        while not (answer := self._answer(_WAIT)):
            if self.death:
                return child
        if "failed" in answer:
            raise OSError(*answer["failed"])
        child.pid = answer["started"]
        return child

    def ended(self) -> int | None:
        """How the command ended, as `Popen.returncode`, or the guardian did; None before."""
        answer = self._answer(0.0)
        if answer:
            return int(answer["ended"])
        return self._process.returncode if self.death else None

    def members(self) -> list[int]:
        """The living processes of the run, as far as this user may signal them."""
        found = self._orphans() if self.death else descendants(self._process.pid)
        return [pid for pid in found if can_signal(pid)]

    def _orphans(self) -> list[int]:
        """What a dead guardian has left to this process; those that have ended are collected.

        Of this process's children, those of the run are in other sessions than this one.
        """
        table = process_table()
        own = table[os.getpid()].session if os.getpid() in table else 0
        left = [
            pid
            for pid, state in table.items()
            if state.parent == os.getpid() and state.session != own and pid not in self._others
        ]
        for pid in left:
            if table[pid].ended and pid != self._process.pid:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
        below = [pid for root in left for pid in descendants(root, table)]
        return [*(pid for pid in left if not table[pid].ended), *below]

    def _send(self, message: Any, descriptors: Sequence[int] = ()) -> None:
        data = json.dumps(message).encode()
        socket.send_fds(self._link, [len(data).to_bytes(HEADER)], descriptors)
        self._link.sendall(data)

    def _answer(self, timeout: float) -> dict[str, Any]:
        """The next answer, if one comes in so many seconds; else empty, as from a dead guardian."""
        if b"\n" not in self._answers:
            self._continue()
            ready, _, _ = select.select([self._link], [], [], timeout)
            with contextlib.suppress(ConnectionError):
                self._answers += self._link.recv(_CHUNK) if ready else b""
        line, newline, rest = self._answers.partition(b"\n")
        if not newline:
            return {}
        self._answers = rest
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer

    def _continue(self) -> None:
        """Let the guardian go on if somebody has stopped it, as everything here waits for it."""
        self._process.send_signal(signal.SIGCONT)  # which does nothing once it is known to be dead


class GuardedCommand:
    """A command that the guardian has started; `pid` is 0 if the guardian died before."""

    def __init__(self, guardian: Guardian) -> None:
        self.pid = 0
        self.returncode: int | None = None
        self._guardian = guardian

    def poll(self) -> int | None:
        """The exit status, minus the signal's number if one ended it; None while it runs."""
        if self.returncode is None:
            self.returncode = self._guardian.ended()
        return self.returncode
