"""Start a run's commands for the launcher, and end all their processes when it is gone.

    python -P -m ddpfix.launchers.running.guardian_process SOCKET RECORD RUN_ID GRACE

The launcher sends commands through the socket, whose end tells that it has ended or died. Orphans
of the commands become children of this process, whatever session, group or environment they have
made for themselves. It imports little: each launch waits for its start.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..parent_death import die_with_parent
from .descent import can_signal, descendants, end_all, process_table, set_child_subreaper

HEADER = 8
"""Bytes before each message of the launcher: its length, with the descriptors of two streams."""

_GRACE = 5.0
"""Seconds at most that the processes have to end after SIGTERM once the launcher is gone."""


def main(words: Sequence[str]) -> int:
    """Serve the launcher to its end, then end what is left of the run."""
    descriptor, record, run_id, grace = int(words[0]), Path(words[1]), words[2], float(words[3])
    set_child_subreaper(True)
    # Handlers, as what is ignored would be ignored by the commands too. The terminal's signals are
    # the launcher's business, and a guardian that ended first would guard nobody.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _do_nothing)
    guardian = _Guardian(socket.socket(fileno=descriptor))
    guardian.serve()
    left_behind = end_all(guardian.members, min(grace, _GRACE))
    if not guardian.dismissed:
        from .record_completion import complete_record  # of no use after most runs

        complete_record(record, run_id, left_behind)
    return 0


class _Guardian:
    """Starts one command after the other and tells the launcher how each one ends.

    `dismissed`: the launcher has ended the run by itself.
    """

    def __init__(self, link: socket.socket) -> None:
        self.dismissed = False
        self._link = link
        self._child: subprocess.Popen[bytes] | None = None
        self._told = False  # the launcher knows that the command has ended

    def serve(self) -> None:
        """Do what the launcher asks for until the socket ends."""
        woken, wake = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _do_nothing)
        while True:
            ready, _, _ = select.select([self._link.fileno(), woken], [], [])
            if woken in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(woken, 1 << 12)
                self._reap()
            if self._link.fileno() in ready and not self._take():
                return

    def members(self) -> list[int]:
        """All processes of the run that this user may signal."""
        self._reap()
        return [pid for pid in descendants(os.getpid()) if can_signal(pid)]

    def _take(self) -> bool:
        """Read and follow one message; False once there are no more."""
        try:
            header, streams, _, _ = socket.recv_fds(self._link, HEADER, 2)
            message = json.loads(self._read(int.from_bytes(header))) if header else None
        except (OSError, ValueError):  # the launcher died in the middle of a message
            return False
        if message is None or message == "dismissed":
            self.dismissed = message == "dismissed"
            return False
        self._start(message, streams)
        return True

    def _read(self, size: int) -> bytes:
        chunks = []
        while size and (chunk := self._link.recv(size)):
            chunks.append(chunk)
            size -= len(chunk)
        return b"".join(chunks)

    def _start(self, message: dict[str, Any], streams: Sequence[int]) -> None:
        if self._child:
            self._child.wait()  # it has ended, or the launcher would not ask for another one
        self._child, self._told = None, False
        try:
            self._child = subprocess.Popen(
                message["argv"],
                env=message["env"],
                stdin=subprocess.DEVNULL,
                stdout=streams[0],
                stderr=streams[1],
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )
        except OSError as error:
            self._tell(failed=[error.errno, error.strerror])
        else:
            self._tell(started=self._child.pid)
        finally:
            for stream in streams:
                os.close(stream)  # the launcher reads to the end of what the command writes

    def _reap(self) -> None:
        """Collect the children that have ended, and tell of the command's own end.

        The command itself stays a zombie until the next one starts, so that its id remains its own
        while the launcher may signal it.
        """
        command = self._child.pid if self._child else 0
        table = process_table()
        for pid, state in table.items():
            if state.parent == os.getpid() and state.ended and pid != command:
                os.waitpid(pid, os.WNOHANG)
        if command and not self._told:
            end = os.waitid(os.P_PID, command, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if end:
                self._told = True
                exited = end.si_code == os.CLD_EXITED
                self._tell(ended=end.si_status if exited else -end.si_status)

    def _tell(self, **what: Any) -> None:
        with contextlib.suppress(OSError):  # the launcher is gone, which the next look shows
            self._link.sendall(json.dumps(what).encode() + b"\n")


def _do_nothing(*_: object) -> None:
    """Handle a signal by waking up."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
