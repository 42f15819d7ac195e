"""Folders and files that other users of the machine cannot read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

FOLDER_MODE = 0o700
FILE_MODE = 0o600


def make_private_folder(folder: Path) -> None:
    """Make a folder for this user alone where it is missing, and those above it. Raises OSError."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(FOLDER_MODE, exist_ok=True)


def close_to_others(folder: Path) -> None:
    """Make a folder of ddpfix's own, and take it from other users' sight. Raises OSError."""
    make_private_folder(folder)
    status = folder.stat()
    if status.st_mode & 0o077 and status.st_uid == os.geteuid():
        folder.chmod(FOLDER_MODE)


def open_private(path: Path, mode: str) -> IO[bytes]:
    """Open a file without a buffer; a new one is for this user alone. Raises OSError."""
    return open(path, mode, buffering=0, opener=_for_this_user)


def _for_this_user(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)
