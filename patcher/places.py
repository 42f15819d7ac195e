"""Where files really are, and what stands beside them."""

from __future__ import annotations

import os

from .light import cache


def real(path: str) -> str:
    """The file that ``path`` leads to."""
    if os.path.islink(path):
        return os.path.realpath(path)
    folder, name = os.path.split(path)
    return os.path.join(real_folder(folder), name)


def real_folder(folder: str) -> str:
    """The folder that a path leads to; "" is the current one."""
    return _resolved(os.path.abspath(folder))


@cache
def _resolved(folder: str) -> str:
    """Asked once: files share folders, and folders those above them."""
    above, name = os.path.split(folder)
    if not name or os.path.islink(folder):
        return os.path.realpath(folder)
    return os.path.join(_resolved(above), name)


def folder_of(path: str) -> str:
    """The folder whose modules a script imports: that of the file a link leads to."""
    return os.path.dirname(os.path.realpath(path) if os.path.islink(path) else path)


def names_in(folder: str) -> frozenset[str]:
    """Names in a folder; none where it cannot be listed."""
    try:
        return frozenset(os.listdir(folder or "."))
    except OSError:
        return frozenset()
