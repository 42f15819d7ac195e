"""Processes that do the same thing at the same moment, and the things they do.

They are in a module of their own, as the processes import it by its name.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path

from ddpfix.errors import InputError
from ddpfix.launchers.backends.command import Command
from ddpfix.launchers.running.run_folder import claim_folder
from ddpfix.launchers.running.run_record import RECORD, RunRecord, initial_content
from ddpfix.launchers.state import write_atomically

AT_ONCE, ROUNDS = 6, 20


def all_at_once(
    function: Callable[[str, int, Barrier], list[str]], folder: Path
) -> list[list[str]]:
    """What the function returns in each of so many processes, which meet at a barrier."""
    context = multiprocessing.get_context("forkserver")
    with (
        context.Manager() as manager,
        ProcessPoolExecutor(AT_ONCE, mp_context=context) as pool,  # says when a process is gone
    ):
        barrier = manager.Barrier(AT_ONCE, timeout=60)
        running = [pool.submit(function, str(folder), one, barrier) for one in range(AT_ONCE)]
        return [each.result(timeout=300) for each in running]


def claims(wanted: str, number: int, barrier: Barrier) -> list[str]:
    """The folders that this process gets, each begun together with all the other processes."""
    folders = []
    for round_number in range(ROUNDS):
        barrier.wait()
        folders.append(str(claim_folder(Path(wanted) / f"runs-{round_number}" / "run")))
    return folders


def records(folder: str, number: int, barrier: Barrier) -> list[str]:
    """What stands in the way of beginning a record in each folder; empty where nothing does."""
    obstacles = []
    for round_number in range(ROUNDS):
        path = Path(folder) / str(round_number)
        path.mkdir(exist_ok=True)
        barrier.wait()
        try:
            RunRecord(path / RECORD, initial_content(Command(("true",), {}), "1", {}))
            obstacles.append("")
        except InputError as error:
            obstacles.append(str(error).removeprefix(f"{path}: "))
    return obstacles


def writes(folder: str, number: int, barrier: Barrier) -> list[str]:
    """Write one file together with the other processes; the errors, if any."""
    errors = []
    for round_number in range(ROUNDS):
        barrier.wait()
        try:
            write_atomically(Path(folder) / f"{round_number}.json", json.dumps([number] * 10_000))
        except OSError as error:
            errors.append(str(error))
    return errors
