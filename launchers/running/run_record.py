"""run.json, the record of a run: complete at any time, even if the disk is full at the end."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs

from ... import __version__
from ...errors import InputError
from ...standard_streams import say
from ..backends.command import Command
from ..private_files import FILE_MODE, open_private
from ..script.secret_flags import masked_variables, masked_words
from .machine import this_place

RECORD = "run.json"
RECORDED_PACKAGES = ("accelerate", "numpy", "peft", "torch", "transformers")

_SPARE_BYTES = 1 << 17
"""Bytes reserved on the disk for the record's next version: a run that ends because the disk is
full can still record it."""


class RunRecord:
    """A JSON file that is replaced atomically.

    Raises InputError if it cannot be written, or is the record of another run, also of one that
    begins at the same moment.
    """

    def __init__(self, path: Path, content: dict[str, Any]) -> None:
        self._path = path
        self._spare = path.with_suffix(".json.part")
        self._content = content
        try:
            self._claim()
            self._replace()
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from None

    def _claim(self) -> None:
        """Create the file for the next version, which only one of several runs can."""
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self._spare, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE))
            if not self._path.exists():
                return
            self._spare.unlink()
        raise InputError(
            f"{self._path.parent}: holds the record of another run; choose another --output"
        )

    def update(self, **facts: Any) -> None:
        """Add these facts, and reserve room for the next ones."""
        self._content |= facts
        if attempts := self._content["attempts"]:
            last = {name: attempts[-1].get(name) for name in ("step", "steps", "loss")}
            self._content["progress"] = {"attempts": len(attempts), **last}
        self._attempt(self._replace)

    def close(self, **ending: Any) -> None:
        """Add how the run ended, and give up the reserved room."""
        self._content |= {"end": utc_now(), **ending}
        self._attempt(self._write)

    def _replace(self) -> None:
        self._write()
        # A full disk is no reason to stop before anything has been lost.
        with contextlib.suppress(OSError), open_private(self._spare, "wb") as file:
            file.write(b"\0" * _SPARE_BYTES)

    def _write(self) -> None:
        text = json.dumps(self._content, indent=2) + "\n"
        # Without O_TRUNC, so that the blocks that the file has are used again.
        opened = os.open(self._spare, os.O_WRONLY | os.O_CREAT, FILE_MODE)
        with os.fdopen(opened, "wb") as file:
            file.write(text.encode())
            file.truncate()
        self._spare.replace(self._path)

    def _attempt(self, write: Any) -> None:
        try:
            write()
        except OSError as error:
            say(f"ddpfix: {self._path}: {error.strerror}")


def initial_content(command: Command, run_id: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a run that starts now."""
    return {
        "schema": 1,
        "run_id": run_id,
        "launcher": {
            "pid": os.getpid(),
            "started": process_start_time(os.getpid()),
            **attrs.asdict(this_place()),
        },
        "start": utc_now(),
        "end": None,
        "exit_status": None,
        "cause": "running",
        "progress": None,
        # What is above is all that a list of runs reads: see stored_run.
        "argv": masked_words(command.argv),
        "env": masked_variables(command.env),
        "unset": list(command.unset),
        "command": command.line,
        "replaced": list(command.replaced_arguments),
        "cwd": str(Path.cwd()),
        **facts,
        "attempts": [],
    }


def versions() -> Iterator[tuple[str, str]]:
    """The versions of everything that a training's results and memory depend on."""
    from importlib import metadata  # imports email and zipfile, which delays a launch

    yield "ddpfix", __version__
    yield "python", sys.version.partition(" ")[0]
    # platform.platform() would start another program.
    system = os.uname()
    yield "platform", "-".join((system.sysname, system.release, system.machine))
    for package in RECORDED_PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            yield package, metadata.version(package)


def git_state(folder: Path) -> dict[str, Any] | None:
    """The commit of a folder and its changed tracked files; None if it is not in a repository."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ".")
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit.strip(), "changed": [line[3:] for line in changed.splitlines()]}


def _git(folder: Path, *words: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(folder), *words]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    return result.stdout


def process_start_time(pid: int) -> int | None:
    """When a living process was started, in clock ticks since boot; None if that is not known.

    Process ids are reused; the id and this time together identify a process.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def utc_now() -> str:
    """The time in UTC, to the millisecond, in ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
