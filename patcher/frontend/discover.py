"""Python files that the user named: files as they are, folders walked in order.

What git ignores is asked of git itself, once per repository: it knows nested .gitignore files,
negation, .git/info/exclude and what is tracked all the same, and answers sooner than a library has
compiled the patterns of one long .gitignore (9 ms against 60 for 350 lines).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from ...errors import InputError

SKIPPED = {"build", "dist", "node_modules", "site-packages", "__pycache__"}
IGNORED = ("ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z")


def scripts(paths: Sequence[str], exclude: Sequence[str] = (), root: str = ".") -> list[str]:
    """Files to check, ``exclude`` being patterns of names, or of paths seen from ``root``.

    What is named itself is not excluded.
    Raises InputError for a path that does not exist and a folder without Python files.
    """
    found: list[str] = []
    for path in map(os.path.normpath, paths):
        if os.path.isdir(path):
            files = list(walk(path, exclude, os.path.abspath(root), ignored_by_git(path)))
            if not files:
                raise InputError(
                    f"{path}: no Python files in this folder; name a script or its folder"
                )
            found += files
        elif os.path.exists(path):
            found.append(path)
        else:
            raise InputError(f"{path}: no such file or folder; check the spelling")
    return found


def walk(folder: str, exclude: Sequence[str], root: str, ignored: set[str]) -> Iterator[str]:
    """Python files below a folder, in order of their paths' parts."""
    try:
        with os.scandir(folder) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}; exclude it or make it readable") from error
    for entry in entries:
        path = os.path.normpath(entry.path)
        if path in ignored or is_excluded(path, exclude, root):
            continue
        if entry.is_dir(follow_symlinks=False):
            if entry.name in SKIPPED or entry.name.startswith("."):
                continue
            if os.path.exists(os.path.join(path, ".git")):
                yield from walk(path, exclude, root, ignored_by_git(path))
            else:
                yield from walk(path, exclude, root, ignored)
        elif entry.name.endswith(".py") and not entry.name.startswith(".") and entry.is_file():
            yield path


def is_excluded(path: str, exclude: Sequence[str], root: str) -> bool:
    """Whether a pattern fits the file's or folder's name, or its path seen from ``root``."""
    if not exclude:
        return False
    from fnmatch import fnmatch  # few projects exclude anything

    relative = os.path.relpath(path, root)
    return any(
        fnmatch(os.path.basename(path), pattern) or fnmatch(relative, pattern.rstrip("/"))
        for pattern in exclude
    )


def ignored_by_git(folder: str) -> set[str]:
    """Files and folders below ``folder`` that git ignores; none outside a repository."""
    if not in_repository(os.path.realpath(folder)):
        return set()
    import subprocess

    # A repository's own configuration must not run programs, nor a hook's variables mislead.
    command = ["git", "-c", "core.fsmonitor=false", *IGNORED]
    variables = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    try:
        done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return set()  # without git, or in a repository that it distrusts, nothing is ignored
    names = os.fsdecode(done.stdout).split("\0")
    return {os.path.normpath(os.path.join(folder, name)) for name in names if name} - {folder}


def in_repository(folder: str) -> bool:
    """Whether ``folder`` or one above it is a git work tree."""
    return any(os.path.exists(os.path.join(up, ".git")) for up in upwards(folder))


def project_root(folder: str) -> str:
    """The nearest folder that holds a repository or a pyproject.toml, else ``folder`` itself."""
    for up in upwards(folder):
        if any(os.path.exists(os.path.join(up, name)) for name in (".git", "pyproject.toml")):
            return up
    return folder


def upwards(folder: str) -> Iterator[str]:
    """``folder``, which is absolute, and all above it."""
    yield folder
    while (above := os.path.dirname(folder)) != folder:
        yield (folder := above)
