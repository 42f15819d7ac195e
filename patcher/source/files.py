"""Bytes to text and back: encoding cookie, byte-order mark, newlines, mode, atomic replace."""

from __future__ import annotations

import codecs
import io
import os
import stat
import tempfile
import tokenize
from pathlib import Path

from ...errors import InputError
from ...record import record

BOM = codecs.BOM_UTF8


@record
class Source:
    """One file's text, with what is needed to write it back byte for byte.

    ``name`` is its path as it was given, or what stdin is called; ``text`` keeps its own newlines.
    """

    name: str
    text: str
    encoding: str
    bom: bool

    @property
    def path(self) -> Path:
        """Where the file is."""
        return Path(self.name)

    @property
    def file(self) -> str:
        """Its name without the folder."""
        return os.path.basename(self.name)

    def encode(self, text: str) -> bytes:
        """``text`` as this file's bytes.

        Raises InputError when the file's declared encoding cannot hold the text.
        """
        try:
            body = text.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise InputError(
                f"{self.name}: the new text does not fit the file's declared encoding "
                f"{self.encoding}: {error}; save the file as UTF-8 first"
            ) from error
        return BOM + body if self.bom else body


def decode(name: str, data: bytes) -> Source:
    """The text of ``data``, the file ``name``, under its PEP 263 cookie or BOM.

    Raises InputError when the cookie names no encoding or the bytes do not fit it.
    """
    try:
        encoding = encoding_of(data)
        bom = data.startswith(BOM)
        if bom:
            encoding, data = "utf-8", data[len(BOM) :]
        return Source(name, data.decode(encoding), encoding, bom)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise InputError(
            f"{name}: cannot be decoded ({error}); declare its encoding in the first line "
            "or save it as UTF-8"
        ) from error


def encoding_of(data: bytes) -> str:
    """The encoding that ``data`` says it has. Raises SyntaxError, as tokenize does."""
    return tokenize.detect_encoding(io.BytesIO(data).readline)[0]


def folder_of(path: str) -> str:
    """The folder whose modules a script imports: that of the file a link leads to."""
    return os.path.dirname(os.path.realpath(path) if os.path.islink(path) else path)


def read_bytes(path: str) -> bytes:
    """The bytes of ``path``. Raises InputError when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def replace_all(changes: list[tuple[Source, str]]) -> None:
    """Write every new text, or none: all temporary files are complete before the first rename.

    A link is followed, so that its target is replaced; modes are kept. Raises InputError.
    """
    staged: list[tuple[str, Path]] = []
    try:
        for source, text in changes:
            target = source.path.resolve()
            mode = stat.S_IMODE(target.stat().st_mode)
            handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            staged.append((temporary, target))
            with os.fdopen(handle, "wb") as file:
                file.write(source.encode(text))
            os.chmod(temporary, mode)
        while staged:
            os.replace(*staged[0])
            staged.pop(0)
    except OSError as error:
        raise InputError(f"{changes[0][0].path}: cannot be written: {error.strerror}") from error
    finally:
        for temporary, _ in staged:
            Path(temporary).unlink(missing_ok=True)
