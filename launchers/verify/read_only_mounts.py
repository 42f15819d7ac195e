"""A view of the file system in which everything but some folders is mounted read-only.

It takes a mount namespace, which root has, or one in a user namespace, and no overlay mounts, which
old kernels do not give in one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from .mount_namespace import SYSTEM_FOLDERS, enter_namespace, mount_points
from .system_calls import MS_BIND, MS_RDONLY, MS_REMOUNT, mount

_FLAGS = {"nosuid": 2, "nodev": 4, "noexec": 8, "noatime": 1 << 10, "nodiratime": 1 << 11}
_FLAGS |= {"relatime": 1 << 21}  # linux/mount.h; what a mount has cannot be taken from it
_OUT_OF_REACH = (errno.EACCES, errno.ENOENT)


def allow_writes_in(folders: Iterable[str | Path]) -> None:
    """Let this process change nothing outside ``folders``. Raises OSError."""
    with enter_namespace():
        points = mount_points()
        for folder in folders:
            mount(folder, folder, "", MS_BIND)  # a mount of its own, which stays as it is
        for point, options in points.items():
            is_system = any(Path(point).is_relative_to(each) for each in SYSTEM_FOLDERS)
            if is_system or "ro" in options:
                continue
            flags = sum(_FLAGS.get(option, 0) for option in options)
            try:
                mount("none", point, "", MS_REMOUNT | MS_BIND | MS_RDONLY | flags)
            except OSError as error:
                if error.errno not in _OUT_OF_REACH:
                    raise
    os.chdir(Path.cwd())  # the current folder is still that of the mount below
