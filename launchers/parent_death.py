"""A child that does not outlive the process that started it, however that one dies."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent(number: signal.Signals = signal.SIGTERM) -> Callable[[], None] | None:
    """What a child does before its exec to get signal `number` at its parent's death (Linux).

    For the `preexec_fn` of `subprocess.Popen`. The parent is the thread that starts the child.
    """
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def before_exec() -> None:
        prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return before_exec
