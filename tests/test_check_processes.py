"""Work shared out among processes: all of it is done once, and a lost process is told of."""

from __future__ import annotations

import marshal
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest
from ddpfix.errors import InputError
from ddpfix.patcher import processes
from ddpfix.patcher.check_files import shares
from ddpfix.patcher.processes import shared_out


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_every_share_of_a_check_is_done_once(processes: int) -> None:
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
            os.read(ended, 1)  # until the other process has the last of this one's share
        elif number == 2:
            os.write(ends, b"x")
        elif number == 3:
            os.read(begun, 1)
        return os.getpid()

    done = shared_out(work, [[0, 1, 2], [3]])
    assert done[1] == done[2] == done[3] != done[0]
    assert os.getpid() not in done.values()


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


def test_a_process_that_is_killed_is_told_of() -> None:
    def work(number: int) -> int:
        if number:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    with pytest.raises(InputError, match="killed by signal 9; --jobs 1"):
        shared_out(work, [[0], [1]])


def test_a_process_that_is_killed_while_it_tells_is_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def half(value: dict[int, int], stream: IO[bytes]) -> None:
        stream.write(marshal.dumps(value)[:-1])
        stream.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(processes, "marshal", SimpleNamespace(dump=half, loads=marshal.loads))
    with pytest.raises(InputError, match="killed by signal 9; --jobs 1"):
        shared_out(lambda number: number, [[0], [1]])


def test_an_error_in_a_process_is_not_lost(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="its traceback is above"):
        shared_out(lambda number: 1 // number, [[1], [0]])
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_no_process_outlives_an_error() -> None:
    seen, held = os.pipe()

    def work(number: int) -> None:
        os.write(held, f"{os.getpid()} ".encode())
        signal.pause()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            shared_out(work, [[0], [1]])
    finally:
        signal.signal(signal.SIGALRM, before)
    os.close(held)
    with open(seen) as stream:  # noqa: PTH123 - no path
        children = stream.read().split()  # to the end: nobody has the other one open
    assert len(children) == 2
    for child in children:
        with pytest.raises(ProcessLookupError):
            os.kill(int(child), 0)
