"""Cache of findings by file content, in the user's cache folder.

The findings in a script depend on its name and bytes, on the modules of its folder that it imports,
on those that it looks for and does not find, on the selected rules and on ddpfix itself. All of
these are part of the key. A file's size, times and inode only save reading it; they are trusted
where the file was clearly older than the moment it was read, so that every later change shows in
them.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import re
import sys
import time
from collections.abc import Iterable
from typing import Any

from ... import __version__
from ...record import record, replace, values
from ..source.files import Source, decode, read_bytes, read_regular
from ..source.libraries import WITHOUT_FOLDERS
from .diagnostics import Diagnostic
from .lookups import Folders, Lookup, names_in

SETTLE_TIME_NS = 2_000_000_000  # ns after which a change must show in a file's times
MAX_ENTRIES = 15  # for one script with different modules in its folder
MAX_FILES = 50_000  # of one project; above, only those of the last run are kept
PATCHER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SUFFIX = ".ddpfix-cache"
IMPORTED = re.compile(rb"^[ \t]*(?:from|import)[ \t]+([\w.]\w*)", re.MULTILINE)
CALL_AT_IMPORT = re.compile(rb"^[A-Za-z_][\w.]*\(", re.MULTILINE)  # main() without a guard
MAX_AGE = 60 * 60 * 24 * 30  # seconds after which an unused project's cache is deleted

Stamp = tuple[int, int, int, int]


@record
class CacheEntry:
    """The findings in one script, and the modules that they depend on.

    ``error`` is without the path; paths are relative to the script's folder, "" is the script.
    ``lookups`` are the modules that it looks for, by folder.
    ``unread`` are imports that could not be read, of a script in which nothing is found.
    """

    key: str
    lookups: tuple[Lookup, ...]
    diagnostics: tuple[Diagnostic, ...]
    error: str
    unread: tuple[str, ...] = ()


NO_FINDINGS = CacheEntry("", (), (), "")


def fingerprint(data: bytes) -> str:
    """Identify some content by its length and digest."""
    return f"{len(data)}-{digest_of(data)}"


def digest_of(data: bytes) -> str:
    """A 128-bit digest, in hexadecimal."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def is_of_interest(data: bytes) -> bool:
    """Whether a file mentions a library that rules are about, or may start a program that does."""
    return mentions_library(data) or starts_local_code(data)


def mentions_library(data: bytes) -> bool:
    """Whether a file mentions a library that rules are about."""
    return b"torch" in data or b"transformers" in data


def starts_local_code(data: bytes) -> bool:
    """Whether a file looks like a script that imports modules of its own project."""
    if b"__main__" not in data and not CALL_AT_IMPORT.search(data):
        return False
    return any(
        match[1].decode("ascii", "replace") not in WITHOUT_FOLDERS
        for match in IMPORTED.finditer(data)
    )


class Cache:
    """Entries by key, and digests by path. ``file`` is where they are saved; None: nowhere."""

    def __init__(self, file: str | None, version: str) -> None:
        self.file = file
        self.version = version
        self.stamps: dict[str, tuple[Stamp, str, bool]] = {}
        self.entries: dict[str, list[CacheEntry]] = {}
        self.digests: dict[str, tuple[str, bool] | None] = {}  # of this run
        self.contents: dict[str, bytes] = {}
        self.sources: dict[str, Source] = {}
        self.folders = Folders(self.fingerprint_at)
        self.shared: dict[object, Any] = {}  # equal lookups, once
        self.changed = False
        if file is not None:
            self.load(file)

    def digest(self, path: str) -> tuple[str, bool] | None:
        """Fingerprint of a file and whether any rule applies to it; None without a file."""
        return self.digest_at(os.path.abspath(path))

    def digest_at(self, path: str) -> tuple[str, bool] | None:
        """``digest`` of a file by its absolute path."""
        if path not in self.digests:
            self.digests[path] = self.fresh_digest(path)
        return self.digests[path]

    def fingerprint_at(self, path: str) -> str | None:
        """Fingerprint of a file by its absolute path; None without a file."""
        digest = self.digest_at(path)
        return digest and digest[0]

    def fresh_digest(self, path: str) -> tuple[str, bool] | None:
        """``digest`` by the file's stamp or, where that has changed, by its bytes."""
        try:
            status = os.stat(path)
            stamp = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
            saved = self.stamps.get(path)
            if saved is not None and saved[0] == stamp:
                return saved[1:]
            now = time.time_ns()
            data = read_regular(path)
        except OSError:
            return None
        result = fingerprint(data), is_of_interest(data)
        if result[1]:
            self.contents[path] = data
        if max(status.st_mtime_ns, status.st_ctime_ns) + SETTLE_TIME_NS < now:
            self.stamps[path] = (stamp, *result)
            self.changed = True
        return result

    def content(self, path: str) -> bytes:
        """The file's bytes, read once for digest and first use. Raises InputError."""
        return self.contents.pop(os.path.abspath(path), b"") or read_bytes(path)

    def source(self, path: str) -> Source:
        """The text of a module, shared by all scripts that import it. Raises InputError."""
        if path not in self.sources:
            self.sources[path] = decode(path, self.content(path))
        return self.sources[path]

    def key(self, path: str) -> str | None:
        """Key of a script's entries: "" where no rule applies to it, None without a file."""
        digest = self.digest(path)
        if digest is None:
            return None
        return f"{os.path.basename(path)} {digest[0]}" if digest[1] else ""

    def recall(self, path: str, key: str) -> CacheEntry | None:
        """The entry of a script if the modules it looks for are unchanged, in any folder."""
        entries = self.entries.get(key, ())
        folder = self.folders.home(path) if entries else ""
        for entry in entries:
            if self.folders.are_unchanged(folder, entry.lookups):
                return entry
        return None

    def remember(self, entry: CacheEntry) -> None:
        """Store an entry under its key."""
        entries = self.entries.setdefault(entry.key, [])
        others = [other for other in entries if other.lookups != entry.lookups]
        lookups = tuple(self.shared.setdefault(each, each) for each in entry.lookups)
        entries[:] = [*others[-MAX_ENTRIES:], replace(entry, lookups=lookups)]
        self.changed = True

    def load(self, file: str) -> None:
        """Load an earlier run's cache, unless it is damaged or of another version."""
        try:
            head, _, body = read_regular(file).partition(b"\n")
            if head.decode() != f"{self.version} {fingerprint(body)}":
                return
            self.stamps, records = marshal.loads(body)
        except (OSError, ValueError, EOFError, TypeError):
            return
        for key, lookups, found, error, unread in records:
            items = tuple(Diagnostic(*item) for item in found)
            entry = CacheEntry(key, lookups, items, error, unread)
            self.entries.setdefault(key, []).append(entry)

    def save(self) -> None:
        """Save everything for the next run, if the folder can be written."""
        if self.file is None or not self.changed:
            return
        if len(self.stamps) > MAX_FILES:
            self.stamps = {path: self.stamps[path] for path in self.digests if path in self.stamps}
        live = {f"{os.path.basename(path)} {stamp[1]}" for path, stamp in self.stamps.items()}
        live |= {self.key(path) or "" for path in self.digests}
        records = [
            (
                key,
                entry.lookups,
                [values(item) for item in entry.diagnostics],
                entry.error,
                entry.unread,
            )
            for key, entries in self.entries.items()
            if key in live
            for entry in entries
        ]
        body = marshal.dumps((self.stamps, records))
        temporary = f"{self.file}.{os.getpid()}"
        folder = os.path.dirname(self.file)
        try:
            os.makedirs(folder, exist_ok=True)
            with open(temporary, "wb") as stream:
                stream.write(f"{self.version} {fingerprint(body)}\n".encode() + body)
            os.replace(temporary, self.file)
            for name in names_in(folder):
                path = os.path.join(folder, name)
                if SUFFIX in name and os.stat(path).st_mtime < time.time() - MAX_AGE:
                    os.unlink(path)
        except OSError:
            return


def version() -> str:
    """Identify this Python, and this ddpfix by the sizes and times of the patcher's files."""
    parts = [__version__, sys.version]
    for folder, _, names in sorted(os.walk(PATCHER)):
        for name in sorted(names):
            if name.endswith(".py"):
                status = os.stat(os.path.join(folder, name))
                parts.append(f"{folder} {name} {status.st_size} {status.st_mtime_ns}")
    return fingerprint("\n".join(parts).encode())


def open_cache(root: str, codes: Iterable[str]) -> Cache:
    """The cache of a project and a selection of rules, in the user's cache folder.

    That is $DDPFIX_CACHE_DIR, else ddpfix/ under $XDG_CACHE_HOME or ~/.cache. A relative
    $XDG_CACHE_HOME is ignored (XDG Base Directory Specification 0.8).
    """
    base = os.environ.get("DDPFIX_CACHE_DIR")
    if not base:
        home = os.environ.get("XDG_CACHE_HOME", "")
        if not os.path.isabs(home):
            home = os.path.join(os.path.expanduser("~"), ".cache")
        base = os.path.join(home, "ddpfix")
    name = digest_of(os.fsencode("\n".join((os.path.realpath(root), *codes))))
    return Cache(os.path.join(base, name + SUFFIX), version())
