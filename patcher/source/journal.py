"""The journal of a replacement of several files, from which a later run finishes it.

It is in the scripts' folder while their files are replaced. A kill leaves it there.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...record import record

NAME = ".ddpfix-patch.json"
STAGED = ".ddpfix-new-"  # begins the names of the new files that are not yet in their place


@record
class Replacement:
    """One file that is to be replaced by ``staged``, which is beside it."""

    target: Path  # no symbolic link
    staged: Path
    before: bytes
    in_place: bool = False  # write over the target, as a rename would lose something of it

    def apply(self) -> None:
        """Put the new bytes into the target. Raises OSError."""
        if self.in_place:
            overwrite(self.target, self.staged.read_bytes())
        else:
            self.staged.replace(self.target)

    def accepts(self, content: bytes, after: bytes) -> bool:
        """Whether the target still holds what the interrupted run found or was writing there."""
        if not self.in_place:
            return content == self.before
        pairs = zip(content, after, strict=False)
        same = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(content), len(after)))
        return content[same:] == self.before[same:]


@record
class Journal:
    """The replacements of one run. Only once it is ``ready`` are all new files complete."""

    folder: Path
    ready: bool
    replacements: tuple[Replacement, ...]

    @property
    def files(self) -> str:
        """The names of the targets, as a list for messages."""
        return ", ".join(os.path.relpath(one.target, self.folder) for one in self.replacements)

    def write(self) -> None:
        """Write the journal whole or not at all. Raises OSError."""
        rows = [
            {
                "file": os.path.relpath(one.target, self.folder),
                "staged": one.staged.name,
                "before": base64.b64encode(one.before).decode(),
                "in_place": one.in_place,
            }
            for one in self.replacements
        ]
        partial = self.folder / f"{NAME}.part"
        text = json.dumps({"ready": self.ready, "files": rows}, indent=2) + "\n"
        partial.touch(0o600)  # it holds sources, which others may not be allowed to read
        partial.write_text(text)
        partial.replace(self.folder / NAME)

    def remove(self) -> None:
        """Delete the new files that are left, then the journal."""
        for one in self.replacements:
            one.staged.unlink(missing_ok=True)
        (self.folder / NAME).unlink(missing_ok=True)


def overwrite(path: Path, data: bytes) -> None:
    """Write over a file, which keeps its links, owner and attributes. Raises OSError."""
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other runs from replacing files under the same journal; the kernel lets go at a kill."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # some network file systems do not lock folders
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def is_interrupted(folder: Path) -> bool:
    """Whether a killed run left its journal in a folder."""
    return (folder / NAME).is_file()


def finish_interrupted(folder: Path) -> str:
    """Finish the replacement that a killed run left in ``folder``, or take it back.

    Returns what was done as a sentence, "" where there was nothing to do. Raises InputError where
    files have been changed since, and for a journal that cannot be one of ddpfix's.
    """
    if not is_interrupted(folder):
        return ""
    with locked(folder):
        if not is_interrupted(folder):
            return ""  # its run was still going on
        journal = read_journal(folder)
        if journal.ready:
            finish(journal)
            told = "finished a patch that was interrupted"
        else:
            told = "took back a patch that was interrupted before it was complete"
        journal.remove()
    return f"{folder}: {told}: {journal.files}"


def finish(journal: Journal) -> None:
    """Apply the replacements that are left. Raises InputError."""
    left = [one for one in journal.replacements if one.staged.is_file()]
    for one in left:
        after = one.staged.read_bytes()
        content = one.target.read_bytes() if one.target.is_file() else b""
        if content != after and not one.accepts(content, after):
            raise InputError(
                f"{one.target}: changed since a patch of it was interrupted; take what you need "
                f"from {one.staged.name} beside it, then delete that file and {NAME}"
            )
    for one in left:
        try:
            one.apply()
        except OSError as error:
            raise InputError(f"{one.target}: cannot be written: {error.strerror}") from error


def read_journal(folder: Path) -> Journal:
    """Read the journal of a folder. Raises InputError where it names files elsewhere."""
    path = folder / NAME
    try:
        content = json.loads(path.read_bytes())
        replacements = tuple(replacement(folder, row) for row in content["files"])
        return Journal(folder, content["ready"] is True, replacements)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{path}: no journal of a patch in this folder; delete it ({type(error).__name__})"
        ) from error


def replacement(folder: Path, row: dict[str, Any]) -> Replacement:
    """One row of a journal. Raises ValueError for files elsewhere: a repository may bring one."""
    target = folder / row["file"]
    staged = target.with_name(row["staged"])
    inside = target.resolve().is_relative_to(folder.resolve()) and not target.is_symlink()
    if not inside or not staged.name.startswith(STAGED) or staged.is_symlink():
        raise ValueError(row["file"])
    before = base64.b64decode(row["before"], validate=True)
    return Replacement(target, staged, before, row["in_place"] is True)


def take_back(replacements: Sequence[Replacement]) -> None:
    """Restore the bytes of files that were replaced. Raises OSError."""
    for one in replacements:
        overwrite(one.target, one.before)
