"""Work shared out among processes: all of it is done, and a lost process is told of."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ddpfix.errors import InputError
from ddpfix.patcher.frontend import checker as check_files
from ddpfix.patcher.frontend.cache import NO_FINDINGS, Cache, CacheEntry

MANY = 64
CODES = ("DF203",)
LEGACY = "import torch\nfor b in bs: b.backward()\nx = batch // args.n_gpu  # {}\n"


@pytest.fixture
def scripts(tmp_path: Path) -> list[str]:
    paths = [tmp_path / f"run{number:02}.py" for number in range(MANY)]
    for number, path in enumerate(paths):
        path.write_text(LEGACY.format(number))
    return list(map(str, paths))


def examined(paths: list[str], jobs: int) -> list[CacheEntry]:
    return list(check_files.check_in_parallel(paths, CODES, Cache(None, ""), jobs))


def test_records_come_in_the_order_of_the_paths_from_several_processes(scripts: list[str]) -> None:
    alone, shared = examined(scripts, 1), examined(scripts, 3)
    assert [record.diagnostics[0].text for record in shared] == [
        f"x = batch // args.n_gpu  # {n}" for n in range(MANY)
    ]
    assert shared == alone


def test_several_processes_do_the_work(scripts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def who(path: str, *_: object) -> CacheEntry:
        return CacheEntry(str(os.getpid()), (), (), "")

    monkeypatch.setattr(check_files, "check_script", who)
    pids = {record.key for record in examined(scripts, 2)}
    assert str(os.getpid()) not in pids
    assert {
        record.key for record in examined(scripts[: check_files.MIN_SCRIPTS_PER_WORKER], 2)
    } == {str(os.getpid())}


def broken_by(end: Callable[[], object]) -> Callable[..., CacheEntry]:
    def examine(path: str, *_: object) -> CacheEntry:
        if path.endswith("40.py"):
            end()
        return NO_FINDINGS

    return examine


def test_a_worker_that_is_killed_ends_in_one_line_that_names_the_way_out(
    scripts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = broken_by(lambda: os.kill(os.getpid(), signal.SIGKILL))
    monkeypatch.setattr(check_files, "check_script", killed)
    with pytest.raises(InputError, match="a process was killed; --jobs 1 does without others"):
        examined(scripts, 2)


def test_an_exception_in_a_worker_is_raised_in_the_caller(
    scripts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_files, "check_script", broken_by(lambda: 1 // 0))
    with pytest.raises(ZeroDivisionError):
        examined(scripts, 2)


INTERRUPTED = """
import os, signal, sys, time
from ddpfix.patcher.frontend import checker as check_files
from ddpfix.patcher.frontend.cache import Cache

def examine(path, *_):
    if path == "0":
        os.kill(os.getppid(), signal.SIGINT)
    time.sleep(0.05)
    print(os.getpid(), flush=True)
    return check_files.NO_FINDINGS

check_files.check_script = examine
try:
    list(check_files.check_in_parallel([str(n) for n in range(400)], (), Cache(None, ""), 2))
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_ctrl_c_ends_the_workers_before_their_work_is_done() -> None:
    words = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    pids = done.stdout.split()
    assert len(pids) < 400
    assert not any(Path(f"/proc/{pid}").exists() for pid in set(pids))
