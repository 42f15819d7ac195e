"""A view of the whole file system for one process, in which writes go to a scratch folder.

Every folder is the lower layer of an overlay mount; what is written lands in the upper layer, in
the scratch folder, and the files below keep their bytes, times and modes, whoever writes and how.
Mounts of overlays need a mount namespace, which root has, or one in a user namespace. There, a
folder below which something else is mounted cannot be a layer; its entries are then layers.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from attrs import field, frozen

from .mount_namespace import SYSTEM_FOLDERS, enter_namespace, mount_points
from .system_calls import MS_BIND, MS_REC, enter_root, make_read_only, mount

_MOST_ENTRIES = 2000  # of a folder whose entries are mounted one by one


def enter_overlay(
    scratch: Path,
    writable: Collection[str],
    replacements: Mapping[str, str],
    *,
    own_folders: Collection[str] = (),
    in_memory: bool = False,
    start_from: Path | None = None,
) -> None:
    """Move this process into a view of the file system whose writes go to ``scratch``.

    Folders in ``writable`` are the real ones. ``replacements`` maps files of the view to the files
    whose content they have in it. ``own_folders`` exist and are the user's. ``in_memory`` keeps
    what is written in memory, for a scratch folder whose file system cannot be an upper layer.
    ``start_from`` is the scratch folder of an earlier view: this one begins as that ended.

    Raises OSError where the kernel gives no namespace or no overlay.
    """
    here = Path.cwd()
    layers, root = scratch / "layers", scratch / "root"
    layers.mkdir(parents=True)
    root.mkdir()
    with enter_namespace() as in_user_namespace:
        if in_memory:
            mount("tmpfs", layers, "tmpfs", 0)
        view = _View(root, layers, mount_points(), in_user_namespace, own_folders, start_from)
        if in_user_namespace:
            mount("tmpfs", root, "tmpfs", 0, "mode=755")
        view.cover("/")
        for folder in writable:
            mount(folder, f"{root}{folder}", "", MS_BIND)
        enter_root(root)
        for target, source in replacements.items():
            _replace(Path(target), Path(source))
    os.chdir(here)


@frozen
class _View:
    """The mounts of one view, made below ``root``; ``points`` are those of the real file system."""

    root: Path
    layers: Path
    points: Mapping[str, frozenset[str]]
    in_user_namespace: bool
    own_folders: Collection[str]
    start_from: Path | None
    _count: list[int] = field(factory=lambda: [0])

    def cover(self, path: str) -> None:
        """Show ``path`` and all below it; its place in the view exists."""
        below = sorted(self._mounts_below(path))
        if path in SYSTEM_FOLDERS or (self._is_read_only(path) and not below):
            self._bind(path)
            return
        try:
            self._overlay(path)
        except OSError:  # such as a mount point of autofs, or a folder of a user namespace
            if below and self._cover_entries(path):
                return
            self._bind(path)
            make_read_only(self._place(path))
        done: list[str] = []
        for each in below:
            if not any(each.startswith(f"{outer}/") for outer in done):
                done.append(each)
                self.cover(each)

    def _is_read_only(self, path: str) -> bool:
        return "ro" in self.points.get(path, ())

    def _mounts_below(self, path: str) -> Iterator[str]:
        prefix = path.rstrip("/") + "/"
        return (each for each in self.points if each.startswith(prefix) and each != path)

    def _place(self, path: str) -> str:
        return f"{self.root}{path}" if path != "/" else str(self.root)

    def _bind(self, path: str) -> None:
        mount(path, self._place(path), "", MS_BIND | MS_REC)

    def _overlay(self, path: str) -> None:
        if not os.path.isdir(path):  # noqa: PTH112  (a file can be a mount point)
            raise NotADirectoryError(path)
        number = str(self._count[0])
        self._count[0] += 1
        upper, work = self.layers / "upper" / number, self.layers / "work" / number
        upper.mkdir(parents=True)
        work.mkdir(parents=True)
        shutil.copystat(path, upper)
        if self.in_user_namespace:
            self._begin_folders(path, upper)
        if self.start_from is not None:
            before = self.start_from / "layers" / "upper" / number
            if before.is_dir():
                _copy_layer(before, upper)
        lower = _escaped(path).replace(":", "\\:")
        options = [f"lowerdir={lower}", f"upperdir={_escaped(str(upper))}"]
        options += [f"workdir={_escaped(str(work))}"]
        options += ["userxattr"] if self.in_user_namespace else ["redirect_dir=on"]
        mount("overlay", self._place(path), "overlay", 0, ",".join(options))

    def _begin_folders(self, path: str, upper: Path) -> None:
        """Make the folders above the user's own in the upper layer.

        The kernel does so at the first write below, but cannot in a user namespace for folders of
        other users.
        """
        for folder in self.own_folders:
            if not Path(folder).is_relative_to(path):
                continue
            for part in reversed([Path(folder), *Path(folder).parents]):
                if part != Path(path) and part.is_relative_to(path):
                    made = upper / part.relative_to(path)
                    made.mkdir(exist_ok=True)
                    shutil.copystat(part, made)

    def _cover_entries(self, path: str) -> bool:
        """Show the entries of a folder one by one; False where that cannot be done."""
        if self._is_read_only(path) or not self.in_user_namespace:
            return False
        try:
            entries = sorted(os.scandir(path), key=lambda entry: entry.name)
        except OSError:
            return False
        if len(entries) > _MOST_ENTRIES:
            return False
        for entry in entries:
            place = Path(self._place(entry.path))
            if entry.is_symlink():
                place.symlink_to(os.readlink(entry.path))  # noqa: PTH115
            elif entry.is_dir():
                place.mkdir()
                self.cover(entry.path)
            else:
                place.touch()
                self._bind(entry.path)
                make_read_only(place)
        shutil.copystat(path, self._place(path))
        return True


def _copy_layer(source: Path, target: Path) -> None:
    """Copy an upper layer, with the marks for files that are gone: devices of number 0."""
    for entry in os.scandir(source):
        copy = target / entry.name
        if entry.is_symlink():
            copy.symlink_to(os.readlink(entry.path))  # noqa: PTH115
        elif entry.is_dir():
            copy.mkdir(exist_ok=True)
            _copy_layer(Path(entry.path), copy)
            shutil.copystat(entry.path, copy)
        elif stat.S_ISCHR(entry.stat().st_mode):
            os.mknod(copy, stat.S_IFCHR, 0)
        else:
            shutil.copy2(entry.path, copy)


def _escaped(path: str) -> str:
    """A path as overlay's options are read."""
    return path.replace("\\", "\\\\").replace(",", "\\,")


def _replace(target: Path, source: Path) -> None:
    """Give a file of the view another content."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        shutil.copyfile(source, target)
    except OSError:  # in a folder that the user may not write to
        mount(source, target, "", MS_BIND)
