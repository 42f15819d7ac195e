"""Copy a script with the modules that it imports, so that they can be patched."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

from ...patcher.api import read_modernized, read_program

_HIDDEN = {"__pycache__", ".git"}


@frozen
class ProgramFolders:
    """Where a program lies: its script's folder ``home`` and the folders of all its modules.

    ``base`` holds all of them, and the folders that the script imports from.
    """

    home: Path
    base: Path
    modules: tuple[Path, ...]

    def is_above_module(self, folder: Path) -> bool:
        """Whether a folder is one of these or holds one."""
        return any(each.is_relative_to(folder) for each in (self.home, *self.modules))


def program_folders(script: Path) -> ProgramFolders:
    """Where the program of a script lies. Raises InputError where it cannot be read."""
    path = script.resolve()
    home = path.parent
    source = read_modernized(str(path))  # what only `patch` can read is patched in the copy
    data = source.encode(source.text) if source else None
    program = read_program(str(path), data, read_modernized)
    files = [Path(module.source.name).resolve() for module in program.modules]
    folders = tuple(dict.fromkeys(file.parent for file in files))
    above = [root for root in program.roots if home.is_relative_to(root)]
    base = Path(os.path.commonpath([home, *folders, *above]))
    return ProgramFolders(home, base, folders)


def copy_program(script: Path, folder: Path, *, as_name: str | None = None) -> Path:
    """Copy a program into ``folder``, Python files as copies, all else as links.

    Folders lie in the copy as they do below the program's base. Returns the copy of the script.
    """
    program = program_folders(script)
    _copy_above(program, program.base, folder)
    target = folder / program.home.relative_to(program.base) / (as_name or script.name)
    target.unlink(missing_ok=True)
    shutil.copyfile(script, target)
    return target


def _copy_above(program: ProgramFolders, source: Path, target: Path) -> None:
    """Copy a folder that holds modules; those without are links, but for the script's own."""
    if source.is_relative_to(program.home):
        _copy_folder(source, target, top=True)
        return
    for path in _copy_files(source, target):
        if program.is_above_module(path):
            _copy_above(program, path, target / path.name)
        elif not target.is_relative_to(path):
            (target / path.name).symlink_to(path)


def _copy_folder(source: Path, target: Path, *, top: bool = False) -> None:
    for path in _copy_files(source, target):
        if not path.is_symlink() and _has_python(path, top):
            _copy_folder(path, target / path.name)
        elif not target.is_relative_to(path):
            (target / path.name).symlink_to(path)


def _copy_files(source: Path, target: Path) -> Iterator[Path]:
    """Copy the files of a folder, links for those that are not Python; yields its folders."""
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.iterdir()):
        if path.name in _HIDDEN:
            continue
        if path.is_dir():
            yield path
        elif path.suffix == ".py" and path.is_file():
            shutil.copyfile(path, target / path.name)
        else:
            (target / path.name).symlink_to(path)


def _has_python(folder: Path, top: bool) -> bool:
    # A package, or a folder of packages; not searched deeper, as data may be millions of files.
    return any(folder.glob("*.py")) or (top and any(folder.glob("*/__init__.py")))
