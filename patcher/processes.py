"""Work shared out among forked processes: each does its own share, then helps with the others'.

multiprocessing's pool takes as long to import and to start as several scripts take to be checked,
and it waits for ever for a worker that was killed. The process that shares out does none of the
work: what it makes of the results is not held up by giving the work's memory back.
"""

from __future__ import annotations

import marshal
import os
import sys

from ..errors import InputError
from .light import Callable, Iterator, Sequence

TYPE_CHECKING = False  # typing takes long to import
if TYPE_CHECKING:
    from typing import Any

WIDTH = 4  # bytes of a ticket
MOST = 10_000  # tickets of a share: a pipe holds 64 KiB of them
ended: list[int] = []  # processes that have told all, and give their memory back meanwhile


def shared_out(work: Callable[[int], Any], shares: Sequence[Sequence[int]]) -> dict[int, Any]:
    """What ``work`` makes of each number of the shares: values that marshal can write.

    There is a process for each share, which may have ``MOST`` numbers.
    Raises InputError where a process was killed, RuntimeError where ``work`` raised in one.
    """
    while ended:
        os.waitpid(ended.pop(), 0)
    queues = [_queue(share) for share in shares]
    workers: list[tuple[int, int]] = []
    done: dict[int, Any] = {}
    try:
        for first in range(len(queues)):
            result, end = os.pipe()
            pid = os.fork()
            if not pid:
                _serve(work, [*queues[first:], *queues[:first]], end)
            os.close(end)
            workers.append((pid, result))
        while workers:
            pid, result = workers[-1]
            with open(result, "rb", closefd=False) as stream:
                data = stream.read()
            workers.pop()  # not before: it is to be ended with the others
            os.close(result)
            done |= _received(pid, data)
    finally:
        for tickets in queues:
            os.close(tickets)
        for pid, result in workers:  # Ctrl-C, or an error: nobody waits for the rest
            os.close(result)
            os.kill(pid, 15)
            os.waitpid(pid, 0)
    return done


def _queue(share: Sequence[int]) -> int:
    """A pipe with a ticket for each number, from which several processes can take."""
    tickets, counter = os.pipe()
    os.write(counter, b"".join(number.to_bytes(WIDTH, "big") for number in share))
    os.close(counter)
    return tickets


def _numbers(tickets: int) -> Iterator[int]:
    while ticket := os.read(tickets, WIDTH):
        yield int.from_bytes(ticket, "big")


def _serve(work: Callable[[int], Any], queues: Sequence[int], end: int) -> None:
    """What a forked process does; it never returns."""
    status = 1
    try:
        results = [(number, work(number)) for tickets in queues for number in _numbers(tickets)]
        with open(end, "wb") as stream:
            marshal.dump(results, stream)
        status = 0
    except KeyboardInterrupt:
        pass  # the first process's to tell of
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def _received(pid: int, data: bytes) -> list[tuple[int, Any]]:
    """What a process has told. Raises InputError or RuntimeError where that is not all."""
    try:
        done: list[tuple[int, Any]] = marshal.loads(data)
    except (EOFError, ValueError):
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    else:
        ended.append(pid)
        return done
    if status < 0:
        raise InputError(f"a process was killed by signal {-status}; --jobs 1 does without others")
    raise RuntimeError("a process failed; its traceback is above")
