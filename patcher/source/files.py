"""Read source files and encode them again: encoding cookie, byte-order mark, newlines."""

from __future__ import annotations

import codecs
import errno
import io
import os
import shlex
import stat
import tokenize
from pathlib import Path

from ...errors import InputError
from ...record import record

BOM = codecs.BOM_UTF8


@record
class Source:
    """One file's text, with what is needed to write it back byte for byte.

    ``name`` is the path as the user gave it, or the name for stdin; ``text`` keeps its newlines.
    """

    name: str
    text: str
    encoding: str
    bom: bool

    @property
    def path(self) -> Path:
        """The file's path."""
        return Path(self.name)

    @property
    def file(self) -> str:
        """The file's name without its folder."""
        return os.path.basename(self.name)

    def encode(self, text: str) -> bytes:
        """Encode ``text`` as this file is encoded.

        Raises InputError when the declared encoding cannot represent the text.
        """
        try:
            body = text.encode(self.encoding)
        except UnicodeError as error:  # some codecs raise nothing more special
            raise InputError(
                f"{self.name}: the new text does not fit the file's declared encoding "
                f"{self.encoding}: {error}; save the file as UTF-8 first"
            ) from error
        return BOM + body if self.bom else body


def decode(name: str, data: bytes) -> Source:
    """Decode a file's bytes by its PEP 263 cookie or BOM.

    Raises InputError when the cookie names no known encoding, or the bytes are not valid in it, and
    for a notebook, whose text would be taken for one expression of Python.
    """
    if os.path.splitext(name)[1] == ".ipynb":
        raise InputError(
            f"{name}: a notebook, no script; `jupyter nbconvert --to script {shlex.quote(name)}` "
            "makes one of it"
        )
    try:
        encoding = encoding_of(data)
        bom = data.startswith(BOM)
        if bom:
            encoding, data = "utf-8", data[len(BOM) :]
        return Source(name, data.decode(encoding), encoding, bom)
    except (SyntaxError, UnicodeError, LookupError) as error:
        raise InputError(
            f"{name}: cannot be decoded ({error}); declare its encoding in the first line "
            "or save it as UTF-8"
        ) from error


def encoding_of(data: bytes) -> str:
    """The encoding declared in ``data``. Raises SyntaxError, as tokenize does."""
    return tokenize.detect_encoding(io.BytesIO(data).readline)[0]


def folder_of(path: str) -> str:
    """The folder that a script imports its siblings from; symbolic links are resolved."""
    return os.path.dirname(os.path.realpath(path) if os.path.islink(path) else path)


def read_bytes(path: str) -> bytes:
    """Read a file. Raises InputError when that fails."""
    try:
        return read_regular(path)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file or folder; check the spelling") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def read_regular(path: str) -> bytes:
    """Read a file that is one: a pipe could be waited for without end. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb", buffering=0) as file:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file; `-` reads standard input", path)
        return file.readall()
