"""Work shared out among processes: all of it is done once, and a lost process is told of."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from ddpfix.errors import InputError
from ddpfix.patcher.processes import shared_out


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_every_part_is_done_once(processes: int) -> None:
    done = shared_out(lambda number: (number, "x" * 100_000), 12, processes)
    assert sorted(done) == list(range(12))
    assert all(value == (number, "x" * 100_000) for number, value in done.items())


def elsewhere(work: Callable[[], object]) -> Callable[[int], object]:
    """Work that another process is sure to get a part of: this one waits until that is gone."""
    here, (seen, held) = os.getpid(), os.pipe()
    parts: list[int] = []

    def run(number: int) -> object:
        if os.getpid() != here:
            return work()
        if not parts:
            os.close(held)
            os.read(seen, 1)
            os.close(seen)
        parts.append(number)
        return number

    return run


def test_a_process_that_is_killed_is_told_of() -> None:
    with pytest.raises(InputError, match="killed by signal 9; --jobs 1"):
        shared_out(elsewhere(lambda: os.kill(os.getpid(), signal.SIGKILL)), 2, 2)


def test_an_error_in_a_process_is_not_lost(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="its traceback is above"):
        shared_out(elsewhere(lambda: 1 // 0), 2, 2)
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_no_process_outlives_an_error() -> None:
    here, children = os.getpid(), list[int]()
    seen, held = os.pipe()

    def work(number: int) -> object:
        if os.getpid() == here:
            os.close(held)
            children.append(int(os.read(seen, 20)))
            raise KeyboardInterrupt
        os.write(held, str(os.getpid()).encode())
        signal.pause()
        return None

    with pytest.raises(KeyboardInterrupt):
        shared_out(work, 2, 2)
    os.close(seen)
    with pytest.raises(ProcessLookupError):
        os.kill(children[0], 0)
