"""Read the verdict that `ddpfix verify --verdict` has written."""

from __future__ import annotations

from pathlib import Path

import attrs

from ...errors import InputError
from ..state_files import read


@attrs.frozen
class Promise:
    """A row of the contract: its code, its title, whether it holds, and the evidence."""

    code: str
    title: str
    status: str
    evidence: str


@attrs.frozen
class StoredVerdict:
    """What was compared, and each promise."""

    compared: str
    rows: list[Promise]
    holds: bool


def read_verdict(path: Path) -> StoredVerdict:
    """The verdict in a file. Raises InputError where there is none."""
    try:
        return read(path, StoredVerdict)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{path}: there is no such file: `ddpfix verify --verdict FILE`") from None
