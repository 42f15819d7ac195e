"""What earlier runs found, kept by content in the user's cache folder.

What a script's check says depends on its own name and bytes, on the modules beside it that it
imports, on those that it looks for and does not find, on the rules selected and on ddpfix itself.
All of it is in the key. A file's size, times and inode only save reading it; they are trusted when
the file was older than the clock's grain as it was read, so that no later change can hide in them.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import sys
import time
from collections.abc import Iterable

from ... import __version__
from ...record import record, values
from ..source.files import Source, decode, folder_of, read_bytes
from .diagnostics import Diagnostic

SETTLED = 2_000_000_000  # ns after which a change must show in a file's times
MOST_RECORDS = 15  # of one script beside other neighbours
MOST_FILES = 50_000  # remembered of one project; above, only those of the last run
PATCHER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SUFFIX = ".ddpfix-cache"
LONG = 60 * 60 * 24 * 30  # seconds after which an unused project's cache goes

Stamp = tuple[int, int, int, int]


@record
class CacheEntry:
    """What was found in one script, and what that rests on.

    ``error`` lacks the path in front; paths are relative to the script's folder, "" is the script.
    """

    key: str
    probes: tuple[tuple[str, str | None], ...]  # modules looked for, digests of those there are
    found: tuple[Diagnostic, ...]
    error: str


NOTHING = CacheEntry("", (), (), "")


def fingerprint(data: bytes) -> str:
    """Name of a content; the empty string for one that no rule needs to see."""
    return f"{len(data)}-{digest_of(data)}"


def digest_of(data: bytes) -> str:
    """128 bits that name some bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def names_in(folder: str) -> frozenset[str]:
    """Names in a folder; none where it cannot be listed."""
    try:
        return frozenset(os.listdir(folder or "."))
    except OSError:
        return frozenset()


def is_of_interest(data: bytes) -> bool:
    """Whether a file mentions a library that any rule is about."""
    return b"torch" in data or b"transformers" in data


class Cache:
    """Records by key, and digests by path. ``file`` is where they stay; None forgets them."""

    def __init__(self, file: str | None, version: str) -> None:
        self.file = file
        self.version = version
        self.stamps: dict[str, tuple[Stamp, str, bool]] = {}
        self.records: dict[str, list[CacheEntry]] = {}
        self.seen: dict[str, tuple[str, bool] | None] = {}  # of this run
        self.contents: dict[str, bytes] = {}
        self.sources: dict[str, Source] = {}
        self.listings: dict[str, frozenset[str]] = {}
        self.changed = False
        if file is not None:
            self.load(file)

    def digest(self, path: str) -> tuple[str, bool] | None:
        """Name of the file's content and whether a rule needs to see it; None without a file."""
        place = os.path.abspath(path)
        if place not in self.seen:
            self.seen[place] = self.fresh_digest(place)
        return self.seen[place]

    def fresh_digest(self, place: str) -> tuple[str, bool] | None:
        try:
            status = os.stat(place)
            stamp = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
            known = self.stamps.get(place)
            if known is not None and known[0] == stamp:
                return known[1:]
            now = time.time_ns()
            with open(place, "rb", buffering=0) as file:
                data = file.read()
        except OSError:
            return None
        result = fingerprint(data), is_of_interest(data)
        if result[1]:
            self.contents[place] = data
        if max(status.st_mtime_ns, status.st_ctime_ns) + SETTLED < now:
            self.stamps[place] = (stamp, *result)
            self.changed = True
        return result

    def content(self, path: str) -> bytes:
        """The file's bytes, which are not read again the first time. Raises InputError."""
        return self.contents.pop(os.path.abspath(path), b"") or read_bytes(path)

    def source(self, path: str) -> Source:
        """The text of a module, which several scripts may import. Raises InputError."""
        if path not in self.sources:
            self.sources[path] = decode(path, self.content(path))
        return self.sources[path]

    def key(self, path: str) -> str | None:
        """Key of a script's records: "" where no rule needs to see it, None without a file."""
        digest = self.digest(path)
        if digest is None:
            return None
        return f"{os.path.basename(path)} {digest[0]}" if digest[1] else ""

    def recall(self, path: str, key: str) -> CacheEntry | None:
        """What is known of a script whose neighbours are what they were, wherever it stands."""
        folder = folder_of(path)
        for known in self.records.get(key, ()):
            if all(self.probe(folder, name) == digest for name, digest in known.probes):
                return known
        return None

    def probe(self, folder: str, name: str) -> str | None:
        """Digest of a module that a script in ``folder`` looks for; None where there is none."""
        if folder not in self.listings:
            self.listings[folder] = names_in(folder)
        if name.partition("/")[0] not in self.listings[folder]:
            return None
        digest = self.digest(os.path.join(folder, name))
        return digest and digest[0]

    def remember(self, record: CacheEntry) -> None:
        """Keep a record for its key."""
        known = self.records.setdefault(record.key, [])
        others = [old for old in known if old.probes != record.probes]
        known[:] = [*others[-MOST_RECORDS:], record]
        self.changed = True

    def load(self, file: str) -> None:
        """Read what an earlier run left; anything that is not whole and of this version is none."""
        try:
            with open(file, "rb") as stream:
                head, _, body = stream.read().partition(b"\n")
            if head.decode() != f"{self.version} {fingerprint(body)}":
                return
            self.stamps, records = marshal.loads(body)
        except (OSError, ValueError, EOFError, TypeError):
            return
        for key, probes, found, error in records:
            known = CacheEntry(key, probes, tuple(Diagnostic(*item) for item in found), error)
            self.records.setdefault(key, []).append(known)

    def save(self) -> None:
        """Leave everything for the next run, or nothing where the folder cannot be written."""
        if self.file is None or not self.changed:
            return
        if len(self.stamps) > MOST_FILES:
            self.stamps = {path: self.stamps[path] for path in self.seen if path in self.stamps}
        live = {f"{os.path.basename(path)} {stamp[1]}" for path, stamp in self.stamps.items()}
        live |= {self.key(path) or "" for path in self.seen}
        records = [
            (key, entry.probes, [values(item) for item in entry.found], entry.error)
            for key, known in self.records.items()
            if key in live
            for entry in known
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
                place = os.path.join(folder, name)
                if SUFFIX in name and os.stat(place).st_mtime < time.time() - LONG:
                    os.unlink(place)
        except OSError:
            return


def version() -> str:
    """Names this Python, and this ddpfix by the sizes and times of the patcher's files."""
    parts = [__version__, sys.version]
    for folder, _, names in sorted(os.walk(PATCHER)):
        for name in sorted(names):
            if name.endswith(".py"):
                status = os.stat(os.path.join(folder, name))
                parts.append(f"{folder} {name} {status.st_size} {status.st_mtime_ns}")
    return fingerprint("\n".join(parts).encode())


def open_cache(root: str, codes: Iterable[str]) -> Cache:
    """The cache of a project and a selection of rules, in the user's cache folder.

    That is $DDPFIX_CACHE_DIR, else ddpfix/ under $XDG_CACHE_HOME or ~/.cache.
    """
    base = os.environ.get("DDPFIX_CACHE_DIR")
    if not base:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        base = os.path.join(home, "ddpfix")
    name = digest_of("\n".join((os.path.realpath(root), *codes)).encode())
    return Cache(os.path.join(base, name + SUFFIX), version())
