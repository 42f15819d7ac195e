"""Work shared out among forked processes, each taking the next part when it is done with one.

multiprocessing's pool takes as long to import and to start as several scripts take to be checked,
and it waits for ever for a worker that was killed.
"""

from __future__ import annotations

import marshal
import os
import sys
from collections.abc import Callable

from ..errors import InputError

TYPE_CHECKING = False  # typing takes long to import
if TYPE_CHECKING:
    from typing import Any

WIDTH = 4  # bytes of a ticket: a pipe holds 64 KiB of them


def shared_out(work: Callable[[int], Any], parts: int, processes: int) -> dict[int, Any]:
    """What ``work`` makes of each number below ``parts``: values that marshal can write.

    Raises InputError where a process was killed, RuntimeError where ``work`` raised in one.
    """
    tickets, counter = os.pipe()
    os.write(counter, b"".join(number.to_bytes(WIDTH, "big") for number in range(parts)))
    os.close(counter)
    others: list[tuple[int, int]] = []
    try:
        for _ in range(processes - 1):
            result, end = os.pipe()
            pid = os.fork()
            if not pid:
                _serve(work, tickets, end)
            os.close(end)
            others.append((pid, result))
        done = dict(_taken(work, tickets))
        while others:
            done |= _received(*others.pop())
    finally:
        os.close(tickets)
        for pid, result in others:  # Ctrl-C, or an error: nobody waits for the rest
            os.close(result)
            os.kill(pid, 15)
            os.waitpid(pid, 0)
    return done


def _taken(work: Callable[[int], Any], tickets: int) -> list[tuple[int, Any]]:
    done = []
    while ticket := os.read(tickets, WIDTH):
        number = int.from_bytes(ticket, "big")
        done.append((number, work(number)))
    return done


def _serve(work: Callable[[int], Any], tickets: int, end: int) -> None:
    """What a forked process does; it never returns."""
    status = 1
    try:
        results = _taken(work, tickets)
        with open(end, "wb") as stream:
            marshal.dump(results, stream)
        status = 0
    except KeyboardInterrupt:
        pass  # the first process's to tell of
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def _received(pid: int, result: int) -> list[tuple[int, Any]]:
    """What a process has done. Raises InputError or RuntimeError."""
    with open(result, "rb") as stream:
        data = stream.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status < 0:
        raise InputError(f"a process was killed by signal {-status}; --jobs 1 does without others")
    if status:
        raise RuntimeError("a process failed; its traceback is above")
    done: list[tuple[int, Any]] = marshal.loads(data)
    return done
