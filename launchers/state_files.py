"""Read files of the state directory: one that cannot be used costs itself alone, and is named."""

from __future__ import annotations

import functools
import json
import math
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ..errors import InputError

Kind = TypeVar("Kind")

MAX_BYTES = 1 << 26
"""Bytes of the largest file that is read: 1000 times what ddpfix writes."""


def load(path: Path, kind: type[Kind], key: str | None = None) -> Kind | None:
    """The content of a state file as `kind`, or None where there is none that can be used.

    A file that is there and cannot be used is named on standard error, once.
    """
    try:
        return read(path, kind, key)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except InputError as error:
        say_once(f"{error}; it is not used")
        return None


def read(path: Path, kind: type[Kind], key: str | None = None) -> Kind:
    """The content of a state file, or of its field `key`, as `kind`, an attrs class.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: it cannot be used; the message names the file, the field and the reason.

    """
    from .state_types import structure  # imports cattrs, which commands without a state do not need

    return unusable_if_wrong(path, lambda: structure(_parse(_text(path), key), kind))


def parse(text: str) -> Any:
    """The data of a JSON text.

    Raises ValueError where the text is no JSON, or has numbers that are none (NaN, Infinity) or
    values that are nested too deeply to be ours.
    """
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def unusable_if_wrong(path: Path, call: Callable[[], Kind]) -> Kind:
    """Call a function that reads `path`; its errors become an InputError that names the file.

    Not so FileNotFoundError and NotADirectoryError: there is no such file then.
    """
    try:
        return call()
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, TypeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None


def _text(path: Path) -> str:
    # Of a pipe, nobody may ever write the other end.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is no file")
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES >> 20} MiB")
    return data.decode()


def _parse(text: str, key: str | None) -> Any:
    data = parse(text)
    if key is None:
        return data
    if not isinstance(data, dict) or key not in data:
        raise ValueError(f"it has no field {key}")
    return data[key]


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number")
    return number


@functools.cache
def say_once(message: str) -> None:
    """Write a line to standard error, the first time that it is asked for."""
    sys.stderr.write(f"ddpfix: {message}\n")
