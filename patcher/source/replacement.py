"""Replace the files of a program: all of them or none, with all that belongs to each file."""

from __future__ import annotations

import os
from pathlib import Path

from ...errors import InputError
from ...record import replace
from .files import Source
from .journal import NAME, STAGED, Journal, Replacement, is_interrupted, locked, take_back
from .metadata import copy_metadata, is_read_only


def replace_all(changes: list[tuple[Source, str]], home: Path | None = None) -> None:
    """Write all new texts: each is complete in a file of its own before the first gets its place.

    Symbolic links are followed; owner, mode, hard links and extended attributes are kept. ``home``
    is the folder for the journal, that of the first file by default. Raises InputError.
    """
    contents = [(source.path.resolve(), source.encode(text)) for source, text in changes]
    for (target, _), (source, _) in zip(contents, changes, strict=True):
        if is_read_only(target):
            raise InputError(f"{source.path}: is read-only; `chmod u+w` it to have it patched")
    folder = contents[0][0].parent if home is None else home.resolve()
    with locked(folder):
        if is_interrupted(folder):
            raise InputError(f"{folder / NAME}: another patch was interrupted here; run it again")
        write_together(folder, contents)


def write_together(folder: Path, contents: list[tuple[Path, bytes]]) -> None:
    """Stage all new bytes, then put them in their places. Raises InputError, and nothing changed.

    Any other end in between leaves the journal.
    """
    steps = [
        Replacement(target, target.with_name(STAGED + os.urandom(6).hex()), target.read_bytes())
        for target, _ in contents
    ]
    current, done = folder / NAME, 0
    try:
        Journal(folder, ready=False, replacements=tuple(steps)).write()
        for index, (target, data) in enumerate(contents):
            current, staged = target, steps[index].staged
            staged.touch(0o600, exist_ok=False)
            staged.write_bytes(data)
            if not copy_metadata(target, staged):
                steps[index] = replace(steps[index], in_place=True)
        current = folder / NAME
        Journal(folder, ready=True, replacements=tuple(steps)).write()
        for step in steps:
            current = step.target
            done += 1
            step.apply()
    except OSError as error:
        undo(folder, steps[:done], error)
        Journal(folder, ready=False, replacements=tuple(steps)).remove()
        raise InputError(f"{current}: cannot be written: {error.strerror}") from error
    Journal(folder, ready=True, replacements=tuple(steps)).remove()


def undo(folder: Path, steps: list[Replacement], reason: OSError) -> None:
    """Restore what was replaced. Raises InputError where that fails too: the journal stays."""
    try:
        take_back([step for step in steps if step.target.read_bytes() != step.before])
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be written: {reason.strerror}; once it can, `ddpfix patch` "
            "finishes what it began"
        ) from error
