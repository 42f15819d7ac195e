"""The folder of a run: its name, and the claim on it, which one launch gets and no other."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from ...errors import InputError
from ..private_files import FOLDER_MODE, close_to_others, make_private_folder
from ..state import state_folder
from .run_record import RECORD

PROJECT = ".ddpfix"
"""The folder of a project that its runs are recorded in."""
_MARKS = (PROJECT, ".git", "pyproject.toml", "setup.cfg", "setup.py")
"""What only the topmost folder of a project has."""


def project_folder(start: Path) -> Path | None:
    """The project that a folder belongs to: it, or the nearest one above it, has a mark of one.

    The home folder is none, whatever is in it, and nor is what is above it.
    """
    outside = {Path.home(), *Path.home().parents}
    for folder in (start, *start.parents):
        if folder in outside:
            return None
        if any((folder / mark).exists() for mark in _MARKS):
            return folder
    return None


def runs_folders(environ: Mapping[str, str] | None = None) -> list[Path]:
    """Where runs are recorded: the current project's folder if there is one, and the state's."""
    project = project_folder(Path.cwd())
    state = state_folder(environ) / "runs"
    return [state] if project is None else [project / PROJECT / "runs", state]


def default_folder(
    recipe: str, environ: Mapping[str, str] | None = None, runs: Path | None = None
) -> Path:
    """A run folder to claim, <time>-<recipe> in `runs`. Creates nothing.

    Without `runs` it is in the current project; without a project, or in one that cannot be written
    to, in the state folder.
    """
    if runs is None:
        places = runs_folders(environ)
        runs = next((place for place in places[:-1] if _can_hold(place)), places[-1])
    return runs / f"{datetime.now():%Y%m%d-%H%M%S}-{recipe}"


def _can_hold(folder: Path) -> bool:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return os.access(existing, os.W_OK)


def claim_folder(wanted: Path) -> Path:
    """Create the folder `wanted`, or the first of `wanted`-2, -3 … that nobody has created.

    Of launches that claim a folder at the same moment, each gets one of its own: the system creates
    a folder once.

    Raises:
        InputError: no folder can be created there.

    """
    try:
        if wanted.is_relative_to(state_folder()):
            close_to_others(state_folder())
        if wanted.parent.parent.name == PROJECT:
            _keep_out_of_git(wanted.parent.parent)
        make_private_folder(wanted.parent)
        for count in itertools.count(1):
            folder = wanted if count == 1 else wanted.with_name(f"{wanted.name}-{count}")
            try:
                folder.mkdir(FOLDER_MODE)
            except FileExistsError:
                continue
            return folder
    except OSError as error:
        raise InputError(
            f"{wanted.parent}: no run folder can be created: {error.strerror}; pass --output"
        ) from None
    raise AssertionError("the numbers have no end")


def _keep_out_of_git(folder: Path) -> None:
    """Make the project's folder of ddpfix, which no commit takes in."""
    make_private_folder(folder)
    with contextlib.suppress(FileExistsError), (folder / ".gitignore").open("x") as file:
        file.write("*\n")


def check_folder(folder: Path) -> None:
    """Raise InputError if `folder` cannot become a run folder. Creates nothing."""
    if (folder / RECORD).exists():
        raise InputError(f"{folder}: holds the record of another run; choose another --output")
    existing = next(path for path in [folder, *folder.absolute().parents] if path.exists())
    if not existing.is_dir():
        raise InputError(f"{existing}: is no folder; choose another --output")
    if not os.access(existing, os.W_OK):
        raise InputError(f"{existing}: cannot be written to; choose another --output")
