"""Traced runs that share one import of torch, which is most of what a tiny run takes.

As a program it imports, reads jobs, one JSON line each, forks itself into a process per rank, and
answers with a line of exit statuses once all of a line's ranks have ended. As a module it is the
other end of that pipe. What launchers do is not tested here: each rank finds the
variables that torchrun would set, and a store that serves as the agent's.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from attrs import frozen
from ddpfix.launchers.backends.command import STALE_PREFIXES, STALE_VARIABLES, Command
from ddpfix.launchers.running.runner import LOG, RunOutcome
from ddpfix.launchers.trace.read import RankTrace, read
from ddpfix.launchers.verify.traced_run import TracedRun, tracer_prefix

COUNTS = ("--processes", "--num_processes")  # of our own back end and of accelerate
HANG = "120"  # seconds without any event
SHARED = (
    "ddpfix.launchers.trace.sealed",
    "peft",  # which transformers asks whether a model is one of its
    "sklearn.metrics",  # by which family A scores
    "torch._dynamo",  # which the first optimizer imports
    "torch._inductor.pattern_matcher",  # which the first compiled graph imports
    "transformers.models.gpt2.modeling_gpt2",
    "transformers.models.roberta.modeling_roberta",
    "transformers.models.t5.modeling_t5",
)


@frozen
class Job:
    """A run to be made in ``folder``; ``world`` is None for a script outside any process group.

    ``prelude`` is a Python file that each rank runs first, to look into what the script does: it
    finds the path for what it saw in the variable SEEN, which ``Run.seen`` reads as JSON. ``cwd``
    is the current folder of the ranks; without it they have the one of the tests.
    """

    folder: Path
    script: Path
    arguments: Sequence[str]
    world: int | None = None
    options: Sequence[str] = ()
    prelude: Path | None = None
    cwd: Path | None = None


@frozen
class Run:
    """A run that has ended; ``statuses`` are those of its ranks."""

    folder: Path
    statuses: tuple[int, ...]
    ranks: tuple[RankTrace, ...]

    @property
    def log(self) -> str:
        """Everything the ranks printed, rank after rank."""
        return "".join(path.read_text() for path in sorted(self.folder.glob("rank*.log")))

    @property
    def seen(self) -> list[Any]:
        """What the prelude of each rank saw, rank after rank."""
        ranks = range(len(self.statuses))
        return [json.loads((self.folder / f"seen{rank}.json").read_text()) for rank in ranks]


class Forge:
    """Makes runs; to be closed as a context manager."""

    def __enter__(self) -> Forge:
        environment = {k: v for k, v in os.environ.items() if k not in STALE_VARIABLES}
        environment = {k: v for k, v in environment.items() if not k.startswith(STALE_PREFIXES)}
        fixed = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        fixed["PYTHONUNBUFFERED"] = "1"  # as a launch does: what is killed leaves all it printed
        self._server = subprocess.Popen(
            [sys.executable, __file__],
            env=environment | fixed,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate()

    def run(self, jobs: Sequence[Job]) -> list[Run]:
        """Make runs at the same time, and read their traces."""
        answer = self._ask([_words(job) for job in jobs])
        return [
            Run(job.folder, tuple(statuses), tuple(read(job.folder / "trace")))
            for job, statuses in zip(jobs, answer, strict=True)
        ]

    def trace(self, what: Command, folder: Path, prelude: Path | None = None) -> TracedRun:
        """What ``launchers.traced.trace`` makes of a command, without the time of its imports."""
        began = time.monotonic()
        ((*statuses,),) = self._ask([_words_of(what, folder, prelude)])
        seconds = time.monotonic() - began
        done = Run(folder, tuple(statuses), tuple(read(folder / "trace")))
        (folder / LOG).write_text(done.log)
        failed = next(filter(None, statuses), 0)
        cause = f"killed by {signal.Signals(-failed).name}" if failed < 0 else f"status {failed}"
        status = failed if failed >= 0 else 128 - failed
        return TracedRun(RunOutcome(status, cause, seconds, 0), done.ranks, folder)

    def _ask(self, jobs: list[dict[str, Any]]) -> list[list[int]]:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        for job in jobs:
            Path(job["folder"]).mkdir(parents=True)
        self._server.stdin.write(json.dumps(jobs) + "\n")
        self._server.stdin.flush()
        answer = self._server.stdout.readline()
        assert answer, "the process that forks has ended"
        statuses: list[list[int]] = json.loads(answer)
        return statuses


def _words(job: Job) -> dict[str, Any]:
    options = ["--out", str(job.folder / "trace"), "--threads", "1", "--phase-timeout", HANG]
    return {
        "folder": str(job.folder),
        "prelude": str(job.prelude) if job.prelude else None,
        "cwd": str(job.cwd) if job.cwd else None,
        "world": job.world,
        "argv": [*options, *job.options, str(job.script), *job.arguments],
        "sealed": False,
        "variables": {},
    }


def _words_of(what: Command, folder: Path, prelude: Path | None) -> dict[str, Any]:
    """What a command says that starts ranks, or one process."""
    argv = list(what.argv)
    tracers = {sealed: tracer_prefix(folder, sealed=sealed)[1] for sealed in (False, True)}
    (sealed,) = (key for key, module in tracers.items() if module in argv)
    worlds = [int(argv[argv.index(flag) + 1]) for flag in COUNTS if flag in argv]
    return {
        "folder": str(folder),
        "prelude": str(prelude) if prelude else None,
        "cwd": None,
        "world": worlds[0] if worlds else None,
        "argv": argv[argv.index(tracers[sealed]) + 1 :],
        "sealed": sealed,
        "variables": what.env,
    }


# ---- the program


def serve() -> None:
    """Answer each line of jobs with the exit statuses of their ranks."""
    for name in SHARED:
        importlib.import_module(name)
    from transformers.conversion_mapping import get_checkpoint_conversion_mapping

    get_checkpoint_conversion_mapping("")  # compiles a thousand patterns, once for all models
    gc.freeze()  # else every child's end copies and frees all that was imported
    for line in sys.stdin:
        jobs = json.loads(line)
        ranks: dict[int, tuple[int, int]] = {}  # process -> job and rank
        stores: list[int] = []  # processes
        for number, job in enumerate(jobs):
            variables: dict[str, str] = job["variables"]
            if job["world"] is not None:
                port, process = store()
                stores.append(process)
                variables |= {"MASTER_PORT": str(port), "MASTER_ADDR": "127.0.0.1"}
            for rank in range(job["world"] or 1):
                if job["world"] is not None:
                    world = str(job["world"])
                    variables |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                    variables |= {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
                    variables["TORCHELASTIC_USE_AGENT_STORE"] = "True"
                ranks[child(job, rank, variables)] = number, rank
        statuses = [[0] * (job["world"] or 1) for job in jobs]
        while ranks:
            process, code = os.wait()
            if process in ranks:
                number, rank = ranks.pop(process)
                statuses[number][rank] = os.waitstatus_to_exitcode(code)
                if code:  # as a launcher does: nobody waits for the dead
                    for other, (same, _) in ranks.items():
                        if same == number:
                            os.kill(other, signal.SIGTERM)
        for process in stores:
            os.kill(process, signal.SIGTERM)
            os.waitpid(process, 0)
        print(json.dumps(statuses), flush=True)


def store() -> tuple[int, int]:
    """A free port, and the process that serves a store there until it is told to end."""
    told, tells = os.pipe()
    process = os.fork()
    if process == 0:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        served = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        os.write(tells, str(served.port).encode())
        while True:
            signal.pause()
    port = int(os.read(told, 16))
    os.close(told)
    os.close(tells)
    return port, process


def child(job: dict[str, Any], rank: int, variables: dict[str, str]) -> int:
    """A rank of a job, in a process of its own."""
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        become(job, rank, variables)
    return process


def become(job: dict[str, Any], rank: int, variables: dict[str, str]) -> NoReturn:
    """Go on as a rank of a job, to its end."""
    from ddpfix.launchers.trace.__main__ import main
    from ddpfix.launchers.trace.sealed import seal

    with (Path(job["folder"]) / f"rank{rank}.log").open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.environ.update(variables)
    if job["cwd"]:
        os.chdir(job["cwd"])
    if job["prelude"]:
        os.environ["SEEN"] = str(Path(job["folder"]) / f"seen{rank}.json")
        runpy.run_path(job["prelude"])
    if job["sealed"]:
        seal()
    imported = {*sys.modules} - {"__main__"}
    try:
        main(job["argv"])
    except SystemExit as end:
        status = end.code
    leave(status, imported)


def leave(status: object, imported: set[str]) -> NoReturn:
    """End as the interpreter does, except that what all runs share is not taken down.

    To free it is to copy it, page by page, which takes longer than a tiny run.
    """
    if isinstance(status, str):
        print(status, file=sys.stderr)
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    for thing in gc.get_objects():  # of this run alone: the others are frozen
        if issubclass(type(thing), io.IOBase):
            with contextlib.suppress(OSError, ValueError):  # it is closed, or its reader gone
                thing.flush()
    for name in {*sys.modules} - imported:
        vars(sys.modules[name]).clear()
    gc.collect()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else int(status is not None))


if __name__ == "__main__":
    serve()
