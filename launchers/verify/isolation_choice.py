"""Choose what keeps the user's files from runs, by a trial on this machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from ...errors import InputError
from . import landlock
from .isolation import START, VIEW, Isolation, remove_folder
from .program_copy import program_folders
from .scratch_copy import NoRoomError, plan_copy

MODES = ("auto", "overlay", "copy", "none")
VARIABLE = "DDPFIX_ISOLATION"
"""The environment variable with the mode, where the request names none."""
_TRIAL = """
import os, sys
script, *folders = sys.argv[1:]
os.close(os.open(script, os.O_WRONLY)) if os.access(script, os.W_OK) else None
for folder in folders:
    if os.access(folder, os.W_OK):
        name = os.path.join(folder, f".ddpfix-trial-{os.getpid()}")
        open(name, "w").close()
        os.rename(name, name + "-2")
        os.remove(name + "-2")
"""


def choose_isolation(
    wish: str | None, script: Path, arguments: Sequence[str], folder: Path
) -> Isolation:
    """The isolation that was asked for, or the best that works here.

    ``wish`` is one of `MODES`; None takes that of the environment variable, or "auto". ``folder``
    will contain all runs. Raises InputError where none works.
    """
    mode = wish or os.environ.get(VARIABLE) or "auto"
    if mode not in MODES:
        raise InputError(f"{VARIABLE}={mode}: it takes {', '.join(MODES)}")
    home, current = script.resolve().parent, Path.cwd()
    plain = Isolation("none", folder, home, current)
    if mode == "none":
        return plain
    known = (current, home, *program_folders(script).modules, *_folders_in(arguments))
    reasons = []
    if mode != "copy":
        own = (*known, *filter(Path.is_dir, (Path.home(), Path(tempfile.gettempdir()).resolve())))
        overlay = attrs.evolve(plain, mode="overlay", own_folders=tuple(dict.fromkeys(own)))
        for candidate in (overlay, attrs.evolve(overlay, in_memory=True)):
            refusal = _try_overlay(candidate, script)
            if not refusal:
                return candidate
            reasons.append(refusal)
        del reasons[1:]  # the first says more
    if mode != "overlay":
        try:
            copy = plan_copy(folder / "copy", known, folder)
            if mode == "copy" or landlock.is_usable():
                return attrs.evolve(plain, mode="copy", copy=copy)
            reasons.append("this kernel has no Landlock to keep a copy's run from your files")
        except NoRoomError as error:
            reasons.append(str(error))
    ways = (
        "--isolation copy, which holds up no writes by full path, or " if len(reasons) > 1 else ""
    )
    raise InputError(
        f"{script}: your files cannot be kept from what it writes ({'; '.join(reasons)}): "
        f"{ways}--in-place, which lets it write to them"
    )


def _try_overlay(isolation: Isolation, script: Path) -> str:
    """Enter a view and write to each of the user's folders in it; why that fails, or ""."""
    with tempfile.TemporaryDirectory(dir=isolation.folder, prefix="trial-") as name:
        trial = Path(name)
        folders = map(str, isolation.own_folders)
        isolation.overlay_view(trial, [name], {}, None).save(trial / "view.json")
        program = [sys.executable, "-c", _TRIAL, str(script.resolve()), *folders]
        result = subprocess.run(
            [*START, str(trial / "view.json"), *program],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        remove_folder(trial / VIEW)
    lines = result.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"no overlay mount: {lines[-1]}" if result.returncode and lines else ""


def _folders_in(arguments: Sequence[str]) -> Iterator[Path]:
    """The folders that arguments name, or that hold the files they name."""
    for word in arguments:
        value = Path(word.rpartition("=")[2] if word.startswith("-") else word)
        with contextlib.suppress(OSError):
            if value.name and value.exists():
                path = value.resolve()
                yield path if path.is_dir() else path.parent
