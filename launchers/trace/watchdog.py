"""Detect a hang, and let every rank report its position before it ends."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from types import FrameType

from .events import Hang, Site
from .recorder import Recorder
from .sites import Sites, site_of

HANG_STATUS = 75
"""The exit status of a rank that hung (EX_TEMPFAIL of sysexits.h)."""

_POLL = 0.2
_GRACE = 5.0
_MAX_FRAMES = 60
# Functions between the script's call and the operation that it means.
_WRAPPERS = {
    "wrapper",
    "inner",
    "decorate_context",
    "_no_grad_wrapper",
    "_wrapped_call_impl",
    "_call_impl",
}


class HangReporter:
    """A thread that reports a hang after ``timeout`` seconds without an event.

    The first rank to notice creates ``rank{R}.hang`` in the folder of the traces; the others see it
    and report at once, before the launcher ends them. Each then waits some seconds for the others'
    reports, kills the processes it has started and exits with `HANG_STATUS`.
    """

    def __init__(self, recorder: Recorder, sites: Sites, timeout: float, world_size: int) -> None:
        self._recorder = recorder
        self._sites = sites
        self._timeout = timeout
        self._world_size = world_size
        self._main = threading.main_thread().ident
        self._began = time.time()
        self._done = threading.Event()
        self._reporting = False

    def start(self) -> None:
        """Start watching."""
        threading.Thread(target=self._watch, name="ddpfix-trace-watchdog", daemon=True).start()

    def stop(self) -> None:
        """Stop watching: the process is about to end normally."""
        self._done.set()

    def hold(self) -> None:
        """Block while a hang is being reported.

        When the first rank exits, the others' collectives fail; their scripts must not end by that.
        """
        if self._reporting:
            time.sleep(2 * _GRACE)

    def _watch(self) -> None:
        while not self._done.wait(_POLL):
            if self._recorder.is_child:
                return
            silent = time.monotonic() - self._recorder.last_event
            other = self._first_report()
            if silent >= self._timeout:
                self._report(silent, f"no event for {self._timeout:g} s")
            elif other is not None:
                self._report(silent, f"{other} reported a hang")

    def _first_report(self) -> str | None:
        for path in self._reports():
            # A file of an earlier run in this folder is older than this process.
            with contextlib.suppress(OSError):
                if path.stat().st_mtime >= self._began - _POLL:
                    return path.stem.replace("rank", "rank ")
        return None

    def _reports(self) -> list[Path]:
        return list(self._recorder.folder.glob("rank*.hang"))

    def _report(self, silent: float, cause: str) -> None:
        self._reporting = True
        frames = sys._current_frames()
        main = frames.get(self._main or 0)
        where, operation = self._position(main)
        if self._recorder.in_flight:
            operation = self._recorder.in_flight[-1]
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        own = threading.get_ident()
        self._recorder.emit(
            Hang(
                seconds=silent,
                cause=cause,
                where=where,
                operation=operation,
                stacks={
                    names.get(ident, str(ident)): _stack(frame)
                    for ident, frame in frames.items()
                    if ident != own
                },
            )
        )
        with self._recorder.quiet():
            (self._recorder.folder / f"rank{self._recorder.rank}.hang").touch()
            until = time.monotonic() + _GRACE
            while len(self._reports()) < self._world_size and time.monotonic() < until:
                time.sleep(_POLL)
        print(
            f"ddpfix trace: rank {self._recorder.rank} hangs in {where}"
            + (f" ({operation})" if operation else "")
            + f": {cause}",
            file=sys.stderr,
            flush=True,
        )
        _kill_children()
        os._exit(HANG_STATUS)

    def _position(self, frame: FrameType | None) -> tuple[Site | None, str | None]:
        """The place of the innermost user frame, and the name of the function that it called."""
        called = None
        while frame is not None:
            name = frame.f_code.co_filename
            if self._sites.is_user(name):
                return site_of(frame), called
            if not self._sites.is_own(name) and frame.f_code.co_name not in _WRAPPERS:
                called = frame.f_code.co_name
            frame = frame.f_back
        return None, called


def _stack(frame: FrameType) -> list[str]:
    summary = traceback.extract_stack(frame)[-_MAX_FRAMES:]
    return [f"{each.filename}:{each.lineno} in {each.name}" for each in summary]


def _kill_children() -> None:
    """Kill this process's children: os._exit would leave the workers of a Pool behind."""
    for process in multiprocessing.active_children():
        process.kill()
    for pid in _descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _descendants(pid: int) -> list[int]:
    found = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, tasks.read_text().split()):
                found += [*_descendants(child), child]
    return found
