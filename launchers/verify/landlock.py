"""Give up the right to write outside some folders, for this process and all that it starts.

Landlock is a part of Linux (5.13, usable for this from 5.19 on) that needs no privilege and no
namespace, and works in most containers. It does not cover times, modes and owners of files.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from .system_calls import gain_no_rights, system_call

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446  # numbers of the calls
_VERSION, _PATH_BENEATH = 1, 1
_WRITE_FILE, _REFER, _TRUNCATE = 1 << 1, 1 << 13, 1 << 14
_CHANGES = _WRITE_FILE | sum(1 << bit for bit in range(4, 13))  # remove_dir … make_sym
_ENOUGH = 2  # the version from which on files can be moved between folders


def landlock_version() -> int:
    """The version of Landlock that the kernel has, 0 where it has none."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        return system_call(_CREATE, None, 0, _VERSION)
    except OSError:
        return 0


def is_usable() -> bool:
    """Whether `allow_writes_below` can do its work here."""
    return landlock_version() >= _ENOUGH


def allow_writes_below(folders: Iterable[str | Path]) -> None:
    """Let this process change nothing outside ``folders``. Raises OSError."""
    version = landlock_version()
    rights = _CHANGES | _REFER | (_TRUNCATE if version >= 3 else 0)
    attributes = ctypes.create_string_buffer(rights.to_bytes(8, "little"), 8)
    rules = system_call(_CREATE, attributes, 8, 0)
    for folder in folders:
        place = os.open(folder, os.O_PATH | os.O_CLOEXEC)
        try:
            rule = rights.to_bytes(8, "little") + place.to_bytes(4, "little")  # packed
            block = ctypes.create_string_buffer(rule, len(rule))
            system_call(_ADD_RULE, rules, _PATH_BENEATH, block, 0)
        finally:
            os.close(place)
    gain_no_rights()
    system_call(_RESTRICT, rules, 0)
    os.close(rules)
