"""Signal all processes of a run, at any depth and in any session.

Torch elastic puts every rank into a session of its own, so a signal to the child's process group
does not reach the ranks. The processes of a run are the descendants of its guardian, which adopts
orphans. Where a system has no such adoption, those with the run's id in their environment are found
by that in /proc.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from .descent import can_signal, end_all, parent_of, send
from .ranks import rank_from_environment

MARK = "DDPFIX_RUN"

_LEFTOVER_GRACE = 5.0  # seconds a process left behind has to end after SIGTERM


class ProcessTree:
    """The process `child` and all other processes of the run.

    `find_descendants` finds those that the guardian has below it.
    """

    def __init__(
        self, child: int, run_id: str, find_descendants: Callable[[], list[int]] = list
    ) -> None:
        self.child = child
        self._mark = f"{MARK}={run_id}".encode()
        self._find_descendants = find_descendants

    def members(self) -> list[int]:
        """The process ids of the run's processes, without zombies."""
        marked = (pid for pid in self._environments() if can_signal(pid))
        return list({*self._find_descendants(), *marked})

    def ranks(self) -> list[int]:
        """The processes that train: those with a rank, else the child.

        A rank's own children, such as DataLoader workers, inherit its environment and do not count.
        """
        environments = self._environments()
        ranks = [pid for pid, variables in environments.items() if rank_from_environment(variables)]
        return [pid for pid in ranks if parent_of(pid) not in ranks] or [self.child]

    def signal_child(self, number: int) -> None:
        """Signal the child's process group, as Ctrl-C in its terminal would."""
        if self.child:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.child, number)

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
        send(pids, number)

    def any_alive(self, pids: Iterable[int]) -> bool:
        """Whether any of these members is still alive."""
        return not set(pids).isdisjoint(self.members())

    def end(self) -> int:
        """Stop what outlived the child, with SIGTERM, then SIGKILL; the number of processes."""
        return end_all(self.members, _LEFTOVER_GRACE)

    def _environments(self) -> dict[int, list[bytes]]:
        environments = {}
        for entry in Path("/proc").glob("[0-9]*"):
            # Unreadable: another user's, or gone since the listing.
            with contextlib.suppress(OSError):
                variables = (entry / "environ").read_bytes().split(b"\0")
                if self._mark in variables:
                    environments[int(entry.name)] = variables
        return environments
