"""A mount namespace for this process: mounts that no other process sees."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from .system_calls import (
    CLONE_NEWNS,
    CLONE_NEWUSER,
    MS_PRIVATE,
    MS_REC,
    mount,
    parent_death_signal,
    set_parent_death_signal,
    unshare,
)

SYSTEM_FOLDERS = ("/dev", "/proc", "/run", "/sys")
"""Folders that are the kernel's and the system's and hold no user's files."""
_OCTAL = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


@contextlib.contextmanager
def enter_namespace() -> Iterator[bool]:
    """Enter a mount namespace for good; yields whether that took a user namespace.

    Mounts are to be made in the context. Raises OSError where the kernel gives none.
    """
    signal, parent = parent_death_signal(), os.getppid()
    in_user_namespace = _unshare()
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    yield in_user_namespace
    set_parent_death_signal(signal)  # the kernel may have forgotten it with the change of rights
    if signal and os.getppid() != parent:
        raise ProcessLookupError("the process that started this one has ended")


def _unshare() -> bool:
    user, group = os.geteuid(), os.getegid()
    try:
        unshare(CLONE_NEWNS)
        return False
    except OSError:
        unshare(CLONE_NEWUSER | CLONE_NEWNS)
    # The order is the kernel's: groups can be mapped once nobody can leave one.
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    return True


def mount_points() -> dict[str, frozenset[str]]:
    """All mount points, with the options of what is mounted there last, such as "ro"."""
    points = {}
    for line in Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape").splitlines():
        words = line.split(" ")
        name = words[4]
        for code, character in _OCTAL.items():
            name = name.replace(code, character)
        points[name] = frozenset(words[5].split(","))
    return points
