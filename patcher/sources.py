"""Bytes to text and back: encoding cookie, byte-order mark, newlines, mode, atomic replace."""

from __future__ import annotations

import codecs
import io
import os
import stat
import tokenize
from pathlib import Path

from ..errors import InputError
from .record import record


@record
class Source:
    """One file's text, with what is needed to write it back byte for byte.

    ``text`` keeps the file's own newlines; ``path`` is only a name for stdin.
    """

    path: Path
    text: str
    encoding: str
    bom: bool

    def encode(self, text: str) -> bytes:
        """``text`` as this file's bytes.

        Raises InputError when the file's declared encoding cannot hold the text.
        """
        try:
            body = text.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise InputError(
                f"{self.path}: the new text does not fit the file's declared encoding "
                f"{self.encoding}: {error}; save the file as UTF-8 first"
            ) from error
        return codecs.BOM_UTF8 + body if self.bom else body


def decode(path: Path, data: bytes) -> Source:
    """The text of ``data`` under its PEP 263 cookie or BOM.

    Raises InputError when the cookie names no encoding or the bytes do not fit it.
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        bom = data.startswith(codecs.BOM_UTF8)
        if bom:
            encoding, data = "utf-8", data[len(codecs.BOM_UTF8) :]
        return Source(path, data.decode(encoding), encoding, bom)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise InputError(
            f"{path}: cannot be decoded ({error}); declare its encoding in the first line "
            "or save it as UTF-8"
        ) from error


def read_bytes(path: Path) -> bytes:
    """The bytes of ``path``. Raises InputError when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def replace_all(changes: list[tuple[Source, str]]) -> None:
    """Write every new text, or none: all temporary files are complete before the first rename.

    A link is followed, so that its target is replaced; modes are kept. Raises InputError.
    """
    import tempfile  # check has no use for it

    staged: list[tuple[str, Path]] = []
    try:
        for source, text in changes:
            target = source.path.resolve()
            mode = stat.S_IMODE(target.stat().st_mode)
            handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            staged.append((temporary, target))
            with os.fdopen(handle, "wb") as file:
                file.write(source.encode(text))
            os.chmod(temporary, mode)  # noqa: PTH101
        while staged:
            os.replace(*staged[0])  # noqa: PTH105
            staged.pop(0)
    except OSError as error:
        raise InputError(f"{changes[0][0].path}: cannot be written: {error.strerror}") from error
    finally:
        for temporary, _ in staged:
            Path(temporary).unlink(missing_ok=True)
