"""What the command line and [tool.ddpfix] ask for together; the command line wins."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from ...errors import InputError
from ..codes import all_codes, selected, split
from .config import read_config
from .discover import project_root, scripts

STDIN = "-"


class Request:
    """Which files, which rules, and the project's settings."""

    def __init__(
        self,
        paths: Sequence[str],
        chosen: Sequence[str] = (),
        ignored: Sequence[str] = (),
        exclude: Sequence[str] = (),
        stdin_filename: str | None = None,
    ) -> None:
        """Raises InputError for what cannot be used, naming where it stands."""
        self.from_stdin = STDIN in paths
        if self.from_stdin and len(paths) > 1:
            raise InputError("`-` stands for standard input and cannot be mixed with other paths")
        if stdin_filename and not self.from_stdin:
            raise InputError("--stdin-filename names what `-` is: give `-` as the path")
        self.paths = paths
        self.name = stdin_filename or STDIN
        folder = common_folder([self.name] if self.from_stdin else paths)
        self.config = read_config(folder)
        self.root = project_root(folder)
        self.chosen = split(chosen) or list(self.config.select)
        self.ignored = split(ignored) or list(self.config.ignore)
        self.exclude = split(exclude) or list(self.config.exclude)
        try:
            self.codes = tuple(selected(all_codes(), self.chosen, self.ignored))
        except InputError as error:
            if self.config.file and not (chosen or ignored):
                raise InputError(f"{self.config.file}: {error}") from error
            raise

    def files(self) -> list[str]:
        """The scripts. Raises InputError."""
        file = self.config.file
        return scripts(self.paths, self.exclude, os.path.dirname(file) if file else ".")


def common_folder(paths: Iterable[str]) -> str:
    """The folder that holds all paths, absolute."""
    folders = {path if os.path.isdir(path) else os.path.dirname(path) for path in paths}
    return os.path.commonpath([os.path.realpath(folder) for folder in folders])
