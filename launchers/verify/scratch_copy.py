"""A copy of the folders that a script works in, for machines without overlay mounts.

The copy lies below a view of the whole tree: for ``/home/ann/code`` there is ``VIEW/home/ann/code``
with copies of its files, and beside it, for paths that begin with ``..``, links to what lies beside
the folder itself. Links and everything outside are for reading alone; that is not ensured here.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from attrs import frozen

LARGE = 64 << 20  # bytes of a file that is linked where there is no room for all
MOST_BYTES = 2 << 30  # copied for each run
MOST_FILES = 200_000
_MOST_NEIGHBOURS = 2000  # entries of a folder above that are linked
_LINKED = {".git", ".hg", ".svn", "node_modules"}
_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")  # in a folder of an installed Python
_SKIPPED = {"__pycache__"}


class NoRoomError(Exception):
    """The folders are too large to be copied; the message says how large."""


@frozen
class ScratchCopy:
    """Copies of ``folders``, none of which is inside another one, below the folder ``view``.

    ``skipped`` is not copied. Files of more than ``largest`` bytes are links.
    """

    view: Path
    folders: tuple[Path, ...]
    skipped: Path
    largest: int | None = None

    def place(self, path: Path) -> Path:
        """The place of an absolute path in the view; the path itself where it is not copied."""
        copied = any(path.is_relative_to(folder) for folder in self.folders)
        if copied and not path.is_relative_to(self.skipped):
            return Path(f"{self.view}{path}")
        return path

    def original(self, path: str) -> str:
        """The path that a path of the view stands for; any other path as it is."""
        prefix = str(self.view)
        return path[len(prefix) :] if path.startswith(prefix + "/") else path

    def make(self) -> None:
        """Make the view anew."""
        shutil.rmtree(self.view, ignore_errors=True)
        for folder in self.folders:
            target = Path(f"{self.view}{folder}")
            target.parent.mkdir(parents=True, exist_ok=True)
            self._copy_folder(folder, target)
        for folder in self.folders:
            for above in folder.parents:
                self._link_entries(above, Path(f"{self.view}{above}"))

    def keep_changes(self, target: Path) -> None:
        """Move the view to ``target`` and leave of it only what is not as in the folders."""
        self.view.rename(target)
        for folder, subfolders, names in os.walk(target, topdown=False):
            for path in (Path(folder, name) for name in (*names, *subfolders)):
                original = Path(f"/{path.relative_to(target)}")
                is_known_link = path.is_symlink() and os.path.lexists(original)
                if is_known_link or (path.is_file() and _is_same(path, original)):
                    path.unlink()
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # noqa: PTH106

    def _copy_folder(self, source: Path, target: Path) -> None:
        target.mkdir(exist_ok=True)
        for entry in _entries(source):
            path, copy = Path(entry.path), target / entry.name
            if entry.name in _SKIPPED or path == self.skipped or os.path.lexists(copy):
                continue
            if entry.is_symlink():
                copy.symlink_to(self._link_target(path))
            elif entry.is_dir():
                if _is_linked(path):
                    copy.symlink_to(path)
                else:
                    self._copy_folder(path, copy)
            elif entry.is_file():
                if self.largest is not None and entry.stat().st_size > self.largest:
                    copy.symlink_to(path)
                else:
                    with contextlib.suppress(PermissionError):  # the script cannot read it either
                        shutil.copy2(path, copy)
        shutil.copystat(source, target)
        if not os.access(target, os.W_OK):
            target.chmod(target.stat().st_mode | stat.S_IRWXU)

    def _link_target(self, link: Path) -> Path:
        """Where the copy of a link leads: into the view, if that has its target."""
        target = Path(os.path.normpath(link.parent / link.readlink()))
        return self.place(target)

    def _link_entries(self, source: Path, target: Path) -> None:
        entries = list(_entries(source))
        for entry in entries if len(entries) <= _MOST_NEIGHBOURS else ():
            copy = target / entry.name
            if not os.path.lexists(copy) and Path(entry.path) != self.skipped:
                copy.symlink_to(
                    self._link_target(Path(entry.path)) if entry.is_symlink() else entry
                )


def plan_copy(view: Path, folders: Iterable[Path], skipped: Path) -> ScratchCopy:
    """A copy of ``folders`` that has room beside the view. Raises NoRoomError."""
    outermost: list[Path] = []
    for folder in sorted(set(folders)):
        if not any(folder.is_relative_to(outer) for outer in outermost):
            outermost.append(folder)
    free = shutil.disk_usage(view.parent).free
    most = min(MOST_BYTES, free // 2)
    for largest in (None, LARGE):
        size = files = 0
        for path, length in _files_to_copy(outermost, skipped):
            if largest is not None and length > largest:
                continue
            size, files = size + length, files + 1
            if files > MOST_FILES:
                raise NoRoomError(f"more than {MOST_FILES:,} files to copy, as {path.parent}")
            if size > most and largest is not None:
                raise NoRoomError(f"more than {most / 1e9:.1f} GB to copy for each run")
        if size <= most:
            return ScratchCopy(view, tuple(outermost), skipped, largest)
    raise AssertionError("the second size is counted to its limit only")


def _files_to_copy(folders: Iterable[Path], skipped: Path) -> Iterator[tuple[Path, int]]:
    for folder in folders:
        for entry in _entries(folder):
            path = Path(entry.path)
            if entry.name in _SKIPPED or path == skipped or entry.is_symlink():
                continue
            if entry.is_dir() and not _is_linked(path):
                yield from _files_to_copy([path], skipped)
            elif entry.is_file():
                yield path, entry.stat().st_size


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from sorted(entries, key=lambda entry: entry.name)
    except OSError:  # not the user's to read
        return


def _is_linked(folder: Path) -> bool:
    return folder.name in _LINKED or any((folder / name).exists() for name in _ENVIRONMENT)


def _is_same(copy: Path, original: Path) -> bool:
    try:
        first, second = copy.stat(), original.stat()
    except OSError:
        return False
    return (first.st_size, first.st_mtime_ns) == (second.st_size, second.st_mtime_ns)
