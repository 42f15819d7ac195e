"""Keep the user's files from what the runs of a verification write, in the way that works here.

An overlay mount keeps everything, whoever writes. Where the kernel gives none, runs work on copies
of the folders that they know of, and Landlock refuses them all other writes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import attrs
from attrs import frozen

from ...errors import InputError
from ..backends.command import Command
from ..trace.read import RankTrace
from .isolated_start import Barrier, View
from .scratch_copy import ScratchCopy

Mode = Literal["overlay", "copy", "none"]
# What the kernel says of a file of another group in a user namespace, and of a read-only mount.
_NO_OVERLAY = (os.strerror(errno.EOVERFLOW), os.strerror(errno.EROFS))
VIEW = "view"
"""In a run's folder, what the run wrote outside of its output folder."""
START = (sys.executable, "-P", "-m", f"{__package__}.isolated_start")
"""The command that starts a command isolated, but for its view and that command."""


@frozen
class Isolation:
    """How the runs of a verification are kept from the user's files.

    ``folder`` is that of all runs, ``home`` the script's own, ``current`` the current one. ``copy``
    and its ``barrier`` belong to the mode "copy", ``in_memory`` to "overlay". ``own_folders`` are
    the user's folders that the script is known to work in.
    """

    mode: Mode
    folder: Path
    home: Path
    current: Path
    own_folders: tuple[Path, ...] = ()
    copy: ScratchCopy | None = None
    in_memory: bool = False
    barrier: Barrier = "none"

    @property
    def summary(self) -> str:
        """A sentence on what keeps the user's files."""
        if self.mode == "overlay":
            return "files: the runs see yours through an overlay mount and change none"
        if self.copy is not None:
            rest = "no write elsewhere is let through"
            if self.barrier == "none":
                rest = "nothing here holds up writes elsewhere by full path"
            return f"files: the runs work on copies of {_names(self.copy.folders)}; {rest}"
        return "files: the runs write to yours, as --in-place asks"

    @contextlib.contextmanager
    def begin(
        self, script: Path, run_folder: Path, writable: Path, start_from: Path | None
    ) -> Iterator[IsolatedRun]:
        """Prepare a run of ``script``, a prepared copy, into ``run_folder``, and clean up after it.

        ``writable`` is the folder that the run's output folder is made in. The run begins with what
        the run in the folder ``start_from`` left behind.
        """
        if self.mode == "none":
            yield IsolatedRun(self, script, None)
            return
        run_folder.mkdir(parents=True, exist_ok=True)
        remove_folder(run_folder / VIEW)
        replacements = self._replacements(script)
        before = start_from / VIEW if start_from is not None else None
        before = before if before is not None and before.is_dir() else None
        real = (str(writable), str(run_folder))
        if self.copy is None:
            view = self.overlay_view(run_folder, real, replacements, before)
            place = self.home / script.name
        else:
            view = self._copy_view(self.copy, real, replacements, before)
            place = self.copy.place(self.home) / script.name
        file = run_folder / "view.json"
        view.save(file)
        yield IsolatedRun(self, place, file)
        if self.copy is not None:
            self.copy.keep_changes(run_folder / VIEW)

    def clean(self) -> None:
        """Remove what the runs of a verification left behind outside of their output folders."""
        for folder in self.folder.glob(f"runs/*/{VIEW}"):
            remove_folder(folder)
        for name in ("copy", "tmp"):
            remove_folder(self.folder / name)

    def overlay_view(
        self,
        run_folder: Path,
        writable: Sequence[str],
        replacements: dict[str, str],
        start_from: Path | None,
    ) -> View:
        """The view of a run, through overlay mounts."""
        return View(
            str(self.current),
            tuple(writable),
            overlay=str(run_folder / VIEW),
            in_memory=self.in_memory,
            replacements=replacements,
            own_folders=tuple(map(str, self.own_folders)),
            start_from=str(start_from) if start_from else None,
        )

    def _copy_view(
        self,
        copy: ScratchCopy,
        writable: Sequence[str],
        replacements: dict[str, str],
        start_from: Path | None,
    ) -> View:
        temporary = self.folder / "tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        copy.make()
        if start_from is not None:
            shutil.copytree(start_from, copy.view, symlinks=True, dirs_exist_ok=True)
        for target, source in replacements.items():
            place = copy.place(Path(target))
            if not place.is_relative_to(copy.view):
                raise InputError(f"{target}: lies outside of what is copied; use --in-place")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.unlink(missing_ok=True)
            shutil.copyfile(source, place)
        folders = (*writable, str(copy.view), str(temporary))
        return View(str(copy.place(self.current)), folders, barrier=self.barrier)

    def _replacements(self, script: Path) -> dict[str, str]:
        """The files of the prepared copy that differ from those of the user's own program."""
        prepared = self.folder / "code"
        root = prepared / script.relative_to(prepared).parts[0]
        result = {}
        for folder, _, names in os.walk(root):
            for name in sorted(names):
                source = Path(folder, name)
                place = os.path.relpath(source, script.parent)
                target = Path(os.path.normpath(self.home / place))
                if not source.is_symlink() and not _has_content(target, source.read_bytes()):
                    result[str(target)] = str(source)
        return result


@frozen
class IsolatedRun:
    """A run that is about to start; ``script`` is the path by which it is started."""

    isolation: Isolation
    script: Path
    view: Path | None

    def arguments(self, words: Sequence[str]) -> list[str]:
        """The script's arguments, with the full paths of copies in place of those copied."""
        copy = self.isolation.copy
        if copy is None:
            return list(words)
        result = []
        for word in words:
            flag, sign, value = word.rpartition("=") if word.startswith("-") else ("", "", word)
            if value.startswith("/"):
                value = str(copy.place(Path(os.path.normpath(value))))
            result.append(f"{flag}{sign}{value}")
        return result

    def command(self, command: Command) -> Command:
        """The command that starts ``command`` isolated."""
        if self.view is None:
            return command
        argv = (*START, str(self.view), *command.argv)
        copy = self.isolation.copy
        if copy is None:
            return attrs.evolve(command, argv=argv)
        variables = {"TMPDIR": str(self.isolation.folder / "tmp")}
        if "PYTHONPATH" in os.environ:
            entries = os.environ["PYTHONPATH"].split(os.pathsep)
            places = [str(copy.place(Path(e))) if e.startswith("/") else e for e in entries]
            variables["PYTHONPATH"] = os.pathsep.join(places)
        return attrs.evolve(command, argv=argv, env=variables | command.env)

    def refused_write(self, ranks: Sequence[RankTrace]) -> str:
        """The last path outside of the copies that ranks tried to write to, "" if there is none."""
        copy = self.isolation.copy
        if copy is None:
            return ""
        allowed = (self.isolation.folder, Path("/dev"), Path("/proc"))
        events = (event for trace in ranks for event in trace.files)
        paths = [event.to or event.path for event in events if event.op != "mkdir"]
        outside = [each for each in paths if not any(Path(each).is_relative_to(a) for a in allowed)]
        return outside[-1] if outside else ""

    def explain(self, failure: str, refused: str) -> str:
        """Why a run failed, if that is because of its isolation, and what to do; else ""."""
        if refused:
            return (
                f"the script writes to {refused}, which is outside of what is copied for it "
                f"({failure}): --in-place lets it"
            )
        if self.isolation.mode == "overlay" and any(each in failure for each in _NO_OVERLAY):
            return f"{failure}: the overlay mount cannot take that write; try --isolation copy"
        return ""

    def name_originals(self, ranks: Sequence[RankTrace]) -> None:
        """Name the user's files in traces, in place of their copies."""
        copy = self.isolation.copy
        for event in (event for trace in ranks for event in trace.files if copy is not None):
            assert copy is not None
            event.path = copy.original(event.path)
            event.to = copy.original(event.to) if event.to else event.to


def remove_folder(folder: Path) -> None:
    """Remove a folder, if it is there, also where an overlay mount left parts closed to all."""

    def allow(function: object, path: str, _: object) -> None:
        with contextlib.suppress(OSError):
            os.chmod(path, 0o700)  # noqa: PTH101
            os.rmdir(path)  # noqa: PTH106

    shutil.rmtree(folder, onerror=allow)


def _has_content(file: Path, content: bytes) -> bool:
    return file.is_file() and file.read_bytes() == content


def _names(folders: Sequence[Path]) -> str:
    return ", ".join(map(str, folders))
