"""How many processes the kernel has killed in this control group because memory was full.

The kernel's out-of-memory killer sends SIGKILL and tells nobody but the counters of the group:
https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files (memory.events), and
https://docs.kernel.org/admin-guide/cgroup-v1/memory.html (memory.oom_control).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
GROUPS = Path("/proc/self/cgroup")


def count_kernel_kills(groups: Path = GROUPS, root: Path = ROOT) -> int | None:
    """The kernel's count for the control group of this process; None where it tells none."""
    for path in _counters(groups, root):
        with contextlib.suppress(OSError, ValueError):
            for line in path.read_text().splitlines():
                name, _, number = line.partition(" ")
                if name == "oom_kill":
                    return int(number)
    return None


def _counters(groups: Path, root: Path) -> Iterator[Path]:
    """The files that may have the count: version 2 of control groups first.

    In a container the root of the file system may be the container's own group.
    """
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return
    for line in sorted(lines):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":
            mounts, file = [root, root / "unified"], "memory.events"
        elif "memory" in controllers.split(","):
            mounts, file = [root / controllers, root / "memory"], "memory.oom_control"
        else:
            continue
        for mount in mounts:
            yield mount / path.lstrip("/") / file
            yield mount / file
