"""The folder of a run: its name, and the claim on it, which one launch gets and no other."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from ...errors import InputError
from ..private_files import FOLDER_MODE, close_to_others, make_private_folder
from ..state import state_folder
from .run_record import RECORD


def default_folder(recipe: str, environ: Mapping[str, str] | None = None) -> Path:
    """A run folder to claim: STATE/runs/<time>-<recipe>. Creates nothing."""
    return state_folder(environ) / "runs" / f"{datetime.now():%Y%m%d-%H%M%S}-{recipe}"


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


def check_folder(folder: Path) -> None:
    """Raise InputError if `folder` cannot become a run folder. Creates nothing."""
    if (folder / RECORD).exists():
        raise InputError(f"{folder}: holds the record of another run; choose another --output")
    existing = next(path for path in [folder, *folder.absolute().parents] if path.exists())
    if not existing.is_dir():
        raise InputError(f"{existing}: is no folder; choose another --output")
    if not os.access(existing, os.W_OK):
        raise InputError(f"{existing}: cannot be written to; choose another --output")
