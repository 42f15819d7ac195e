"""Find and signal all processes of a run, at any depth and in any session.

Torch elastic puts every rank into a session of its own, so a signal to the child's process group
does not reach the ranks. All processes of a run have its id in their environment; on Linux they are
found by it in /proc, even orphans whose launcher has died.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from .ranks import rank_from_environment

MARK = "DDPFIX_RUN"

_POLL = 0.05  # seconds between looks
_LEFTOVER_GRACE = 5.0  # seconds a process left behind has to end after SIGTERM


class ProcessTree:
    """The child process and all its descendants."""

    def __init__(self, child: subprocess.Popen[bytes], run_id: str) -> None:
        self.child = child
        self._mark = f"{MARK}={run_id}".encode()

    def members(self) -> list[int]:
        """The process ids of the run's processes, without zombies."""
        return list(self._environments())

    def ranks(self) -> list[int]:
        """The processes that train: those with a rank, else the child.

        A rank's own children, such as DataLoader workers, inherit its environment and do not count.
        """
        environments = self._environments()
        ranks = [pid for pid, variables in environments.items() if rank_from_environment(variables)]
        return [pid for pid in ranks if _parent(pid) not in ranks] or [self.child.pid]

    def signal_child(self, number: int) -> None:
        """Signal the child's process group, as Ctrl-C in its terminal would."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.child.pid, number)

    def signal_all(self, number: int, except_for: Collection[int] = ()) -> int:
        """Signal every member and the child's group, or every member except these.

        Returns the number of members.
        """
        members = self.members()
        self.signal([pid for pid in members if pid not in except_for], number)
        if not except_for:
            self.signal_child(number)
        return len(members)

    def signal(self, pids: Iterable[int], number: int) -> None:
        """Signal those of the processes that still exist."""
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def any_alive(self, pids: Iterable[int]) -> bool:
        """Whether any of these members is still alive."""
        return not set(pids).isdisjoint(self.members())

    def end(self) -> int:
        """Stop what outlived the child, with SIGTERM, then SIGKILL; the number of processes."""
        count = self.signal_all(signal.SIGTERM)
        deadline = time.monotonic() + _LEFTOVER_GRACE
        while self.members() and time.monotonic() < deadline:
            time.sleep(_POLL)
        while self.signal_all(signal.SIGKILL):  # repeatedly, as one may have forked meanwhile
            time.sleep(_POLL)
        return count

    def _environments(self) -> dict[int, list[bytes]]:
        environments = {}
        for entry in Path("/proc").glob("[0-9]*"):
            # Unreadable: another user's, or gone since the listing.
            with contextlib.suppress(OSError):
                variables = (entry / "environ").read_bytes().split(b"\0")
                if self._mark in variables:
                    environments[int(entry.name)] = variables
        return environments


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
