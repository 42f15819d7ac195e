"""Work shared out among processes: all of it is done once, and a lost process is told of."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from ddpfix.errors import InputError
from ddpfix.patcher.check_files import shares
from ddpfix.patcher.processes import shared_out


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_every_part_is_done_once(processes: int) -> None:
    shares = [range(number, 12, processes) for number in range(processes)]
    done = shared_out(lambda number: (number, "x" * 100_000), shares)
    assert sorted(done) == list(range(12))
    assert all(value == (number, "x" * 100_000) for number, value in done.items())


def test_who_is_done_helps_with_the_shares_of_others() -> None:
    begun, begins = os.pipe()
    ended, ends = os.pipe()

    def work(number: int) -> int:
        if number == 0:
            os.write(begins, b"x")
            os.close(ends)
            os.read(
                ended, 1
            )  # until the other process has the last of this one's share, or is done
        elif number == 2:
            os.write(ends, b"x")
        elif number == 3:
            os.read(begun, 1)
        return os.getpid()

    done = shared_out(work, [[0, 1, 2], [3]])
    assert done[0] == os.getpid()
    assert done[1] == done[2] == done[3] != done[0]


def test_shares_are_neighbours_of_about_as_many_bytes(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.py" for number in range(6)]
    for path, size in zip(paths, (5, 1, 1, 1, 1, 1), strict=True):
        path.write_text("#" * size)
    parts = [[str(path)] for path in paths]
    assert shares(parts, 2) == [[0], [1, 2, 3, 4, 5]]
    assert shares([*parts, [str(tmp_path / "none.py")]], 3) == [[0], [1, 2, 3], [4, 5, 6]]


def test_a_share_begins_with_its_large_folders(tmp_path: Path) -> None:
    sizes = {"a/1.py": 2, "b/1.py": 1, "b/2.py": 3, "c/1.py": 5, "a/2.py": 1}
    for name, size in sizes.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("#" * size)
    (share,) = shares([[str(tmp_path / name)] for name in sizes], 1)
    assert " ".join(list(sizes)[number] for number in share) == "c/1.py b/1.py b/2.py a/1.py a/2.py"


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
        shared_out(elsewhere(lambda: os.kill(os.getpid(), signal.SIGKILL)), [[0], [1]])


def test_an_error_in_a_process_is_not_lost(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="its traceback is above"):
        shared_out(elsewhere(lambda: 1 // 0), [[0], [1]])
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
        shared_out(work, [[0], [1]])
    os.close(seen)
    with pytest.raises(ProcessLookupError):
        os.kill(children[0], 0)
