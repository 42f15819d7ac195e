"""Keep copies of the files that a script wrote, for one that has no option for where it writes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from .events import File

_LEAVES_A_FILE = ("write", "append", "create", "update", "truncate", "link")


class WrittenFiles:
    """Remembers what one process writes below ``folders``, and copies it when the process ends.

    A file lies in ``target`` as it does below its folder. What a run only names by a folder beyond
    these is not kept, nor is a cache (``.cache``), nor what it removed again.
    """

    def __init__(self, target: Path, folders: Iterable[Path]) -> None:
        self._target = target
        resolved = {Path(os.path.realpath(each)) for each in folders}
        self._folders = sorted(
            each for each in resolved if not any(other in each.parents for other in resolved)
        )
        self._paths: set[str] = set()

    def note(self, event: File) -> None:
        """Remember the file that an event leaves behind."""
        if event.op == "rename" and event.to:
            self._paths.add(event.to)
        elif event.op in _LEAVES_A_FILE:
            self._paths.add(event.path)

    def copy(self) -> None:
        """Copy what is still there."""
        for name in sorted(self._paths):
            path = Path(os.path.realpath(name))
            for folder in self._folders:
                if folder in path.parents and ".cache" not in path.parts:
                    self._copy(path, self._target / path.relative_to(folder))

    def _copy(self, path: Path, target: Path) -> None:
        for source in [path] if path.is_file() else sorted(path.rglob("*")):
            place = target / source.relative_to(path) if source != path else target
            if source.is_file() and self._target not in source.parents:
                place.parent.mkdir(parents=True, exist_ok=True)
                own = place.with_name(f".{place.name}.{os.getpid()}")
                shutil.copyfile(str(source), str(own))
                own.replace(place)  # several ranks may have written it
