"""The processes of a run, however deep and in whatever session, and signals for them.

Torch elastic puts every rank into a session of its own, so the process group of the child alone
does not reach the ranks. All processes of a run carry its id in their environment, and on Linux
they are found by it in /proc, also when the launcher between has died and they are orphans.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from .ranks import rank_told

MARK = "DDPFIX_RUN"

_POLL = 0.05  # seconds between looks
_LEFTOVER_GRACE = 5.0  # seconds a process left behind has to end after SIGTERM


class ProcessTree:
    """The child and everything it started."""

    def __init__(self, child: subprocess.Popen[bytes], run_id: str) -> None:
        self.child = child
        self._mark = f"{MARK}={run_id}".encode()

    def members(self) -> list[int]:
        """The living processes that carry the run's mark, without zombies."""
        return list(self._environments())

    def ranks(self) -> list[int]:
        """The processes that train: those with a rank but for their own children, else the child.

        Workers of a rank's loaders inherit its environment.
        """
        found = self._environments()
        ranks = [pid for pid, variables in found.items() if rank_told(variables)]
        return [pid for pid in ranks if _parent(pid) not in ranks] or [self.child.pid]

    def signal_child(self, number: int) -> None:
        """Signal the child and its group: what Ctrl-C in its terminal would do."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.child.pid, number)

    def signal_all(self, number: int, but: Collection[int] = ()) -> int:
        """Signal every member and the child's group, or every member but these."""
        members = self.members()
        self.signal([pid for pid in members if pid not in but], number)
        if not but:
            self.signal_child(number)
        return len(members)

    def signal(self, pids: Iterable[int], number: int) -> None:
        """Signal those that still are there."""
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def living(self, pids: Iterable[int]) -> bool:
        """Whether any of these members still lives."""
        return not set(pids).isdisjoint(self.members())

    def end(self) -> int:
        """Stop whoever outlived the child: SIGTERM, then SIGKILL. Returns how many there were."""
        count = self.signal_all(signal.SIGTERM)
        deadline = time.monotonic() + _LEFTOVER_GRACE
        while self.members() and time.monotonic() < deadline:
            time.sleep(_POLL)
        while self.signal_all(signal.SIGKILL):  # again, should one have forked meanwhile
            time.sleep(_POLL)
        return count

    def _environments(self) -> dict[int, list[bytes]]:
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            # Unreadable: another user's, or gone since the listing.
            with contextlib.suppress(OSError):
                variables = (entry / "environ").read_bytes().split(b"\0")
                if self._mark in variables:
                    found[int(entry.name)] = variables
        return found


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
