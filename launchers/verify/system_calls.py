"""System calls of Linux that Python has no functions for: mounts, namespaces, rights.

Every function raises OSError where the kernel refuses.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000  # linux/sched.h
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 1 << 18  # linux/mount.h
MS_RDONLY, MS_REMOUNT = 1, 32
MNT_DETACH = 2
_MOUNT_SETATTR = 442  # the number of a newer call is the same on every machine
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = -100, 0x8000, 1
_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 2, 38  # linux/prctl.h

_libc = ctypes.CDLL(None, use_errno=True)


def system_call(number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Make a system call by its number; returns what it returns."""
    words = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return _checked(_libc.syscall(ctypes.c_long(number), *words))


def unshare(flags: int) -> None:
    """Move this process into new namespaces; it must have one thread only."""
    _checked(_libc.unshare(ctypes.c_int(flags)))


def mount(source: str | Path, target: str | Path, kind: str, flags: int, data: str = "") -> None:
    """Mount ``source`` on ``target``."""
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode(),
        ctypes.c_ulong(flags),
        os.fsencode(data),
    )
    _checked(result, str(target))


def make_read_only(target: str | Path) -> None:
    """Make a mount and all below it read-only (Linux 5.12)."""
    attributes = b"".join(
        value.to_bytes(8, "little") for value in (_MOUNT_ATTR_RDONLY, 0, 0, 0)
    )  # struct mount_attr: set, clear, propagation, user namespace
    block = ctypes.create_string_buffer(attributes, len(attributes))
    system_call(_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(target), _AT_RECURSIVE, block, 32)


def enter_root(folder: str | Path) -> None:
    """Make a mounted folder the root of this process and let go of the old one."""
    os.chdir(folder)
    if _libc.pivot_root(b".", b".") == 0:
        _checked(_libc.umount2(b".", ctypes.c_int(MNT_DETACH)))
    else:  # the first root of a machine cannot be moved
        os.chroot(".")
    os.chdir("/")


def parent_death_signal() -> int:
    """The signal that this process gets when its parent ends, 0 for none."""
    number = ctypes.c_int(0)
    _checked(_libc.prctl(_PR_GET_PDEATHSIG, ctypes.byref(number), 0, 0, 0))
    return number.value


def set_parent_death_signal(number: int) -> None:
    """Get this signal when the parent ends."""
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(number), 0, 0, 0))


def gain_no_rights() -> None:
    """Gain no rights by starting a program, as by sudo; without it Landlock is refused."""
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0))


def _checked(result: int, name: str | None = None) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
    return result
