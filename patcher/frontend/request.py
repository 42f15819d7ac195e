"""Merge the command line with [tool.ddpfix]; the command line overrides."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from ...errors import InputError
from ..codes import all_codes, select_codes, split_codes
from .config import read_config
from .discover import find_scripts, project_root

STDIN = "-"


class Request:
    """Which files, which rules, and the project's settings."""

    def __init__(
        self,
        paths: Sequence[str],
        select: Sequence[str] = (),
        ignore: Sequence[str] = (),
        exclude: Sequence[str] = (),
        stdin_filename: str | None = None,
    ) -> None:
        """Raises InputError, naming the file where settings are wrong."""
        self.from_stdin = STDIN in paths
        if self.from_stdin and len(paths) > 1:
            raise InputError("`-` stands for standard input and cannot be mixed with other paths")
        if stdin_filename and not self.from_stdin:
            raise InputError("--stdin-filename names what `-` is: give `-` as the path")
        self.paths = paths
        self.skipped: list[str] = []  # files and folders that ``files`` has left out
        self.name = stdin_filename or STDIN
        folder = common_folder([self.name] if self.from_stdin else paths)
        self.config = read_config(folder)
        self.root = project_root(folder)
        self.select = split_codes(select) or list(self.config.select)
        self.ignore = split_codes(ignore) or list(self.config.ignore)
        self.exclude = split_codes(exclude) or list(self.config.exclude)
        try:
            self.codes = tuple(select_codes(all_codes(), self.select, self.ignore))
        except InputError as error:
            if self.config.file and not (select or ignore):
                raise InputError(f"{self.config.file}: {error}") from error
            raise

    def files(self) -> list[str]:
        """Paths of the scripts. Raises InputError."""
        file = self.config.file
        root = os.path.dirname(file) if file else "."
        self.skipped.clear()
        return find_scripts(self.paths, self.exclude, root, self.skipped)


def common_folder(paths: Iterable[str]) -> str:
    """The folder that holds all paths, absolute."""
    folders = {path if os.path.isdir(path) else os.path.dirname(path) for path in paths}
    return os.path.commonpath([os.path.realpath(folder) for folder in folders])
