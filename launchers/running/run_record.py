"""run.json, the record of a run: whole at any time, and whole at the end on a full disk too."""

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

from ... import __version__
from ..backends.command import Command

RECORD = "run.json"
RECORDED_PACKAGES = ("accelerate", "numpy", "peft", "torch", "transformers")

_ROOM = 1 << 17
"""Bytes kept on the disk for the record's next version: a run that ends as the disk is full, which
may be why it ends, can still say so."""


class RunRecord:
    """A JSON file that is replaced as a whole."""

    def __init__(self, path: Path, content: dict[str, Any]) -> None:
        self._path = path
        self._beside = path.with_suffix(".json.part")
        self._content = content
        self._replace()

    def update(self, **facts: Any) -> None:
        """Add these facts, and keep room for more."""
        self._content |= facts
        self._attempt(self._replace)

    def close(self, **ending: Any) -> None:
        """Add how it ended; nothing is kept beside the record any more."""
        self._content |= {"end": now(), **ending}
        self._attempt(self._write)

    def _replace(self) -> None:
        self._write()
        # A full disk is no reason to stop before anything has been lost.
        with contextlib.suppress(OSError):
            self._beside.write_bytes(b"\0" * _ROOM)

    def _write(self) -> None:
        text = json.dumps(self._content, indent=2) + "\n"
        # Without O_TRUNC, so that the blocks that the file has are used again.
        opened = os.open(self._beside, os.O_WRONLY | os.O_CREAT, 0o666)
        with os.fdopen(opened, "wb") as file:
            file.write(text.encode())
            file.truncate()
        self._beside.replace(self._path)

    def _attempt(self, write: Any) -> None:
        try:
            write()
        except OSError as error:
            sys.stderr.write(f"ddpfix: {self._path}: {error.strerror}\n")


def opening(command: Command, run_id: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What is known when a run starts."""
    return {
        "schema": 1,
        "run_id": run_id,
        "launcher": {"pid": os.getpid(), "started": started(os.getpid())},
        "argv": list(command.argv),
        "env": command.env,
        "unset": list(command.unset),
        "command": command.line,
        "replaced": list(command.replaced),
        "cwd": str(Path.cwd()),
        **facts,
        "start": now(),
        "end": None,
        "exit_status": None,
        "cause": "running",
        "attempts": [],
    }


def versions() -> Iterator[tuple[str, str]]:
    """The versions of what a training's numbers and memory depend on."""
    from importlib import metadata  # with it come email and zipfile, a tenth of a launch's way

    yield "ddpfix", __version__
    yield "python", sys.version.partition(" ")[0]
    # platform.platform() would start a program to ask.
    system = os.uname()
    yield "platform", "-".join((system.sysname, system.release, system.machine))
    for package in RECORDED_PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            yield package, metadata.version(package)


def git_state(folder: Path) -> dict[str, Any] | None:
    """The commit that a folder is at, and which of its tracked files differ; None without git."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ".")
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit.strip(), "changed": [line[3:] for line in changed.splitlines()]}


def _git(folder: Path, *words: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(folder), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    return done.stdout


def started(pid: int) -> int | None:
    """When a living process was started, in clock ticks since boot; None where it is not known.

    Together with it the id names a process for good: ids are used again.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def now() -> str:
    """The time in UTC, to the millisecond, as ISO 8601 has it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
