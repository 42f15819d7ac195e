"""Find Python files: files that the user names, and those of folders, in order.

Git itself is asked once per repository which files it ignores: it knows nested .gitignore files,
negation, .git/info/exclude and tracked files that a pattern matches.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from ...errors import InputError

UNMENTIONED = {".git", "__pycache__"}
SKIPPED = {"build", "dist", "node_modules", "site-packages", "__pycache__"}
IGNORED = ("ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z")


def find_scripts(
    paths: Sequence[str],
    exclude: Sequence[str] = (),
    root: str = ".",
    skipped: list[str] | None = None,
) -> list[str]:
    """Files to check. ``exclude`` are patterns of names, or of paths relative to ``root``.

    A path that is named itself is never excluded. ``skipped`` collects files and folders that are.
    Raises InputError for a folder without Python files.
    """
    result: list[str] = []
    for path in map(os.path.normpath, paths):
        if os.path.isdir(path):
            left_out: list[str] = []
            files = list(walk(path, exclude, os.path.abspath(root), ignored_by_git(path), left_out))
            if skipped is not None:
                skipped += left_out
            if not files:
                raise InputError(
                    f"{path}: no Python files in this folder; name a script or its folder"
                )
            result += files
        else:
            result.append(path)  # where it cannot be read, the others are still checked
    return result


def walk(
    folder: str, exclude: Sequence[str], root: str, ignored: set[str], skipped: list[str]
) -> Iterator[str]:
    """Python files below a folder, in order of their paths' parts; collects what is skipped."""
    try:
        with os.scandir(folder) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}; exclude it or make it readable") from error
    for entry in entries:
        path = os.path.normpath(entry.path)
        is_folder = entry.is_dir(follow_symlinks=False)
        hidden = is_folder and (entry.name in SKIPPED or entry.name.startswith("."))
        if hidden or path in ignored or is_excluded(path, exclude, root):
            if entry.name not in UNMENTIONED and (is_folder or entry.name.endswith(".py")):
                skipped.append(path)
            continue
        if is_folder:
            nested = os.path.exists(os.path.join(path, ".git"))
            inner = ignored_by_git(path) if nested else ignored
            yield from walk(path, exclude, root, inner, skipped)
        elif entry.name.endswith(".py") and not entry.name.startswith(".") and is_script(entry):
            yield path


def is_script(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a file, or a link that goes round in circles: to read it says so."""
    try:
        return entry.is_file()
    except OSError:
        return True


def is_excluded(path: str, exclude: Sequence[str], root: str) -> bool:
    """Whether a pattern fits the file's or folder's name, or its path relative to ``root``."""
    if not exclude:
        return False
    from fnmatch import fnmatch  # few projects exclude anything

    relative = os.path.relpath(path, root)
    return any(
        fnmatch(os.path.basename(path), pattern) or fnmatch(relative, pattern.rstrip("/"))
        for pattern in exclude
    )


def is_left_out(path: str, exclude: Sequence[str], root: str) -> bool:
    """Whether a pattern fits a file or a folder above it, below ``root``."""
    while exclude and path != root and os.path.dirname(path) != path:
        if is_excluded(path, exclude, root):
            return True
        path = os.path.dirname(path)
    return False


def ignored_by_git(folder: str) -> set[str]:
    """Files and folders below ``folder`` that git ignores; none outside a repository."""
    if not in_repository(os.path.realpath(folder)):
        return set()
    import subprocess

    # The repository's configuration must not run programs, nor a hook's GIT_* variables apply.
    command = ["git", "-c", "core.fsmonitor=false", *IGNORED]
    variables = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    try:
        git = subprocess.run(command, cwd=folder, env=variables, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return set()  # without git, or in a repository that it distrusts, nothing is ignored
    names = os.fsdecode(git.stdout).split("\0")
    return {os.path.normpath(os.path.join(folder, name)) for name in names if name} - {folder}


def in_repository(folder: str) -> bool:
    """Whether ``folder`` or one above it is a git work tree."""
    return any(
        os.path.exists(os.path.join(parent, ".git")) for parent in folder_and_parents(folder)
    )


def project_root(folder: str) -> str:
    """The nearest folder that holds a repository or a pyproject.toml, else ``folder`` itself."""
    for parent in folder_and_parents(folder):
        if any(os.path.exists(os.path.join(parent, name)) for name in (".git", "pyproject.toml")):
            return parent
    return folder


def folder_and_parents(folder: str) -> Iterator[str]:
    """``folder``, which is absolute, and all folders above it."""
    yield folder
    while (parent := os.path.dirname(folder)) != folder:
        yield (folder := parent)
