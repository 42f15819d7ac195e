"""The back ends: programs that can start a plan's processes, and their command lines.

Every setting is on the command line, so that neither a configuration file of the user's nor an
environment variable changes it. For two or more processes accelerate gets `--multi_gpu`, on the CPU
too: `--cpu --num_processes 2` silently runs one process (measured with accelerate 1.15).

Torch elastic would leave a folder torchelastic_* in the temporary folder for each run. It makes
none where its logs go to /dev/null (DefaultLogsSpecs in torch/distributed/elastic/multiprocessing,
since torch 2.3); the output is logged here.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import Template

import attrs

from ...errors import InputError
from ..script.flags import remove_flag
from .interpreter import Interpreter

NEUTRAL_CONFIG = Path(__file__).with_name("accelerate.yaml")
DIRECT_LAUNCHER = "ddpfix.launchers.running.direct_launcher"
_LOCAL_RENDEZVOUS = {
    "--rdzv-endpoint": "127.0.0.1:0",  # any free port
    "--rdzv-id": "none",
    "--local-addr": "127.0.0.1",  # else the host's name, which may not resolve
}
"""torchrun's rendezvous on a single machine."""

RESTART_VARIABLES = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""What torchrun needs in its environment to restart ranks. Without it they meet in the store of the
ranks before them, may find the addresses of those, and wait for them. The static rendezvous of
accelerate always behaves so (seen with torch 2.13; pytorch/pytorch#135712)."""


@attrs.frozen
class Backend:
    """A program that starts processes on one machine.

    `words` makes its command line from the number of processes, the threads of each and the program
    of another Python ("" for our own). `module` is
    its option for Python's ``-m``. `restarts`: it can start the ranks again after a failure.
    `expands`: torch elastic replaces `$local_rank` and `$$` in the arguments of the ranks.
    `abbreviates`: it would take flags of the script for abbreviations of its own, such as `--log`,
    so that "--" has to end its own.
    """

    words: Callable[[int, int, str], list[str]]
    module: str = "-m"
    restarts: bool = False
    expands: bool = False
    abbreviates: bool = False


class ShellWord(str):
    """A word of a command that the shell of a batch job must expand, so it is not quoted."""

    __slots__ = ()


def choose_backend(name: str | None, world: int, other: Interpreter | None = None) -> str:
    """The back end's name; by default plain Python for one process, else accelerate.

    Where `other` runs the ranks, it is torchrun if accelerate is not installed there. One process
    needs no launcher: `accelerate launch` would set no RANK either, take two seconds
    more, and read more configuration.

    Raises:
        InputError: there is no back end of this name.

    """
    if name is None:
        return "python" if world == 1 else other.backend if other else "accelerate"
    if name not in BACKENDS:
        raise InputError(f"--launcher {name}: choose one of {', '.join(BACKENDS)}")
    return name


def require_packages(backend: str, other: Interpreter | None = None) -> None:
    """Raise InputError if a package that the back end needs is missing, before every rank fails."""
    if other is not None and backend == "accelerate" and not other.accelerate:
        raise InputError(
            f"accelerate is not installed for {other.program}: use --launcher torchrun"
        )
    if other is not None:
        return
    for package in ["torch"] + ["accelerate"] * (backend == "accelerate"):
        if importlib.util.find_spec(package) is None:
            raise InputError(f"{package} is not installed here: pip install 'ddpfix[train]'")


def launcher_command(
    name: str,
    world: int,
    threads: int,
    prefix: Sequence[str],
    rendezvous: Mapping[str, str] | None = None,
    restarts: int = 0,
    other: Interpreter | None = None,
) -> list[str]:
    """The command line before the script; `prefix` (``-m module`` and its options) runs it.

    `rendezvous` are torchrun's options on several machines. After a failure the back end starts the
    ranks again, `restarts` times. With `other` it is that Python's back end.

    Raises:
        InputError: the back end cannot start this many processes, or cannot restart them.

    """
    backend = BACKENDS[name]
    python = other.program if other else ""
    module = [backend.module if word == "-m" else word for word in prefix[:1]]
    words = backend.words(world, threads, python)
    if name == "torchrun" and rendezvous:
        words = _torchrun(world, threads, python, rendezvous)
    if backend.restarts:
        words += ["--max-restarts", str(restarts)]
    elif restarts:
        raise InputError(f"--max-restarts: {name} starts no rank again; use --launcher torchrun")
    if other is not None and not other.can_drop_logs:
        for flag in ("--log-dir", "--log_dir"):
            words = remove_flag(words, flag, takes_value=True)
    if other is not None and not other.accelerate:  # and so may have no ddpfix, nor its files
        words = remove_flag(words, "--config_file", takes_value=True)
    if other is not None and not other.has_dashed_options:
        words = [_with_underscores(word) for word in words]
        words = remove_flag(words, "--local_addr", takes_value=True)  # since torch 2.0, too
    end = ["--"] * backend.abbreviates
    return [*words, *module, *end, *escape_words(name, prefix[1:])]


def escape_words(name: str, words: Sequence[str]) -> list[str]:
    """Escape words so that the back end passes them to the script unchanged."""
    if not BACKENDS[name].expands:
        return list(words)
    return [word.replace("$", "$$") if _is_altered(word) else word for word in words]


def find_program(name: str) -> str:
    """The program `name` of our own Python installation; "" if there is none.

    Just the name if the shell would find the same file, else its path.
    """
    own = Path(sys.executable) if name == "python" else Path(sys.executable).with_name(name)
    on_path = shutil.which(name)
    if (
        on_path
        and own.exists()
        and Path(on_path).parent == own.parent
        and Path(on_path).samefile(own)
    ):
        return name
    return str(own) if own.exists() else ""


def _is_altered(word: str) -> bool:
    return Template(word).safe_substitute(local_rank="") != word


def _python(world: int, threads: int, python: str) -> list[str]:
    if world > 1:
        raise InputError(f"{world} processes: plain Python starts one; choose another --launcher")
    return [python or find_program("python")]


def _accelerate(world: int, threads: int, python: str) -> list[str]:
    choices = {
        "--config_file": str(NEUTRAL_CONFIG),
        "--num_processes": str(world),
        "--num_machines": "1",
        "--machine_rank": "0",
        "--gpu_ids": "all",  # all that CUDA_VISIBLE_DEVICES leaves
        "--mixed_precision": "no",
        "--dynamo_backend": "no",
        "--main_process_port": "0",  # any free one
        "--num_cpu_threads_per_process": str(threads),
        "--log_dir": os.devnull,
    }
    # It refuses --multi_gpu for one process; the neutral config then says the same.
    several = ["--multi_gpu"] * (world > 1)
    return [
        *_console(python, "accelerate", "accelerate.commands.launch", "launch"),
        *several,
        *_flat(choices),
    ]


def _torchrun(
    world: int, threads: int, python: str, rendezvous: Mapping[str, str] = _LOCAL_RENDEZVOUS
) -> list[str]:
    choices = {
        "--nnodes": "1",
        "--nproc-per-node": str(world),
        "--rdzv-backend": "c10d",
        "--log-dir": os.devnull,
        **rendezvous,
    }
    return [*_console(python, "torchrun", "torch.distributed.run"), *_flat(choices)]


def _slurm(world: int, threads: int, python: str) -> list[str]:
    """One torchrun per node; the job script sets $head and $port (see `export`)."""
    choices = {
        "--nnodes": ShellWord('"$SLURM_JOB_NUM_NODES"'),
        "--nproc-per-node": str(world),
        "--rdzv-backend": "c10d",
        "--log-dir": os.devnull,
        "--rdzv-endpoint": ShellWord('"$head:$port"'),
        "--rdzv-id": ShellWord('"$SLURM_JOB_ID"'),
    }
    return [*_console(python, "torchrun", "torch.distributed.run"), *_flat(choices)]


def _direct(world: int, threads: int, python: str) -> list[str]:
    # -P: else a random.py in the current folder would be imported in place of the library's.
    own = [find_program("python"), "-P", "-m", DIRECT_LAUNCHER, "--processes", str(world)]
    return [*own, "--python", python] if python else own


def _console(python: str, name: str, module: str, *words: str) -> list[str]:
    """The console script `name`, or its module if the script is not ours or not installed."""
    if python:
        return [python, "-m", module]
    if find_program(name):
        return [find_program(name), *words]
    return [find_program("python"), "-m", module]


def _with_underscores(word: str) -> str:
    """An option as torch spelled it before 2.0."""
    return f"--{word[2:].replace('-', '_')}" if word.startswith("--") else word


def _flat(choices: dict[str, str]) -> list[str]:
    return [word for choice in choices.items() for word in choice]


BACKENDS = {
    "python": Backend(_python),
    "accelerate": Backend(_accelerate, "--module", expands=True),
    "torchrun": Backend(_torchrun, "--module", restarts=True, expands=True, abbreviates=True),
    "slurm": Backend(_slurm, "--module", restarts=True, expands=True, abbreviates=True),
    "direct": Backend(_direct),
}
BACKEND_CHOICES = ("accelerate", "torchrun", "direct")
"""The values of --launcher: `slurm` is for job scripts only, `python` for one process only."""
