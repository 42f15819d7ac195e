"""Owner, mode and extended attributes of a file, for the one that is to replace it."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def copy_metadata(original: Path, replacement: Path) -> bool:
    """Give ``replacement`` what a rename over ``original`` would lose; whether all of it.

    It is not where the original has several names (hard links), or where this user may not set its
    owner or one of its attributes: then the original has to be written in place.
    """
    status = original.stat()
    if status.st_nlink > 1:
        return False
    try:
        own = replacement.stat()
        if (own.st_uid, own.st_gid) != (status.st_uid, status.st_gid):
            os.chown(replacement, status.st_uid, status.st_gid)
        replacement.chmod(status.st_mode & 0o7777)
        wanted = extended_attributes(original)
        present = extended_attributes(replacement)  # a folder can hand some down
        for name in present.keys() - wanted.keys():
            os.removexattr(replacement, name)
        for name, value in wanted.items():
            if present.get(name) != value:
                os.setxattr(replacement, name, value)
    except OSError:
        return False
    return True


def extended_attributes(path: Path) -> dict[str, bytes]:
    """A file's extended attributes, access lists among them; none on a file system without them."""
    try:
        return {name: os.getxattr(path, name) for name in os.listxattr(path)}
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return {}
        raise


def is_read_only(path: Path) -> bool:
    """Whether a file is not meant to be written, or cannot be. root could write each of them."""
    return not path.stat().st_mode & 0o222 or not os.access(path, os.W_OK)
