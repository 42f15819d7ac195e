"""The Python that runs the ranks, where it is not the one that runs ddpfix."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from ...errors import InputError

RANK_START = Path(__file__).parents[1] / "rank_start.py"
_OWN = __package__.rpartition(".")[0]
OLDEST_PYTHON = (3, 8)
OLDEST_TORCH = (1, 13)
SECONDS = 60  # for an interpreter on a slow network drive to start

# Runs in that interpreter, of whatever version: Python 3.8 has importlib.metadata.
QUESTION = """
import json, sys
try:
    from importlib.metadata import version, PackageNotFoundError
except ImportError:
    print(json.dumps({"python": list(sys.version_info[:2])})); sys.exit()
found = {"python": list(sys.version_info[:2])}
for name in ("torch", "accelerate"):
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        pass
print(json.dumps(found))
"""


@attrs.frozen
class Interpreter:
    """A Python installation: its program, and its versions of Python, torch and accelerate.

    A package that it lacks has the version "".
    """

    program: str
    python: tuple[int, ...]
    torch: str = ""
    accelerate: str = ""

    @property
    def backend(self) -> str:
        """The back end for several processes by default: one whose package is there."""
        return "accelerate" if self.accelerate else "torchrun"

    @property
    def has_dashed_options(self) -> bool:
        """Whether its torchrun knows `--nproc-per-node` beside `--nproc_per_node` (torch 2.0)."""
        return _numbers(self.torch) >= (2, 0)

    @property
    def can_drop_logs(self) -> bool:
        """Whether its torch elastic takes /dev/null for its logs; before 2.3 it makes a folder."""
        return _numbers(self.torch) >= (2, 3)

    @property
    def summary(self) -> str:
        """Where the ranks run, in a sentence."""
        version = ".".join(map(str, self.python))
        return f"The ranks run in {self.program} (Python {version}, torch {self.torch})."


def read_interpreter(path: str) -> Interpreter:
    """Ask a Python for its versions. It runs a few lines of ours and none of the user's.

    Raises InputError where it is no Python, is older than 3.8, or has no torch of 1.13 or newer.
    """
    program = shutil.which(path)
    if program is None:
        raise InputError(f"--python {path}: no such program")
    found = _ask(program)
    if found is None:
        raise InputError(f"--python {path}: it does not answer as a Python does")
    interpreter = Interpreter(
        str(Path(program).absolute()),  # not resolved: a venv's python is a link out of the venv
        tuple(found["python"]),
        found.get("torch", ""),
        found.get("accelerate", ""),
    )
    if interpreter.python < OLDEST_PYTHON:
        raise InputError(f"--python {path}: Python {_dotted(interpreter.python)}; 3.8 is needed")
    if not interpreter.torch:
        raise InputError(f"--python {path}: torch is not installed there")
    if _numbers(interpreter.torch) < OLDEST_TORCH:
        raise InputError(f"--python {path}: torch {interpreter.torch}; 1.13 is needed")
    return interpreter


def interpreter_elsewhere(path: str) -> Interpreter:
    """The Python of a machine that is not this one: nothing of it is known, so the oldest is taken.

    Newer ones understand what the oldest does. Without `path` it is whichever is first on the PATH.
    """
    return Interpreter(path or "python", OLDEST_PYTHON, ".".join(map(str, OLDEST_TORCH)))


def rank_module(module: str, other: Interpreter | None) -> tuple[str, ...]:
    """The arguments that run a module of ours in the ranks, in our Python or the `other` one."""
    if other is None:
        return ("-m", module)
    return (str(RANK_START), module.removeprefix(f"{_OWN}."))  # it does not have ddpfix


def choose_interpreter(path: str, environ: Mapping[str, str] | None = None) -> Interpreter | None:
    """The Python at `path`, or without one that of the active environment; None for our own.

    Raises InputError as `read_interpreter` does.
    """
    if not path:
        return active_interpreter(os.environ if environ is None else environ)
    program = shutil.which(path)
    if program and Path(program).absolute() == Path(sys.executable).absolute():
        return None
    return read_interpreter(path)


def active_interpreter(environ: Mapping[str, str]) -> Interpreter | None:
    """The Python of the active environment, where ddpfix lives elsewhere and torch lives there."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        folder = environ.get(variable)
        if not folder:
            continue
        if Path(folder).resolve() == Path(sys.prefix).resolve():
            return None
        try:
            return read_interpreter(str(Path(folder) / "bin" / "python"))
        except InputError:
            continue
    return None


def _ask(program: str) -> dict[str, Any] | None:
    """What the interpreter answers; None where it does not."""
    try:
        done = subprocess.run(
            [program, "-I", "-c", QUESTION],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        found = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("python"), list) else None


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: 2.4.1+cpu is (2, 4)."""
    parts = version.split("+")[0].split(".")[:2]
    return tuple(int(part) if part.isdigit() else 0 for part in parts)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
