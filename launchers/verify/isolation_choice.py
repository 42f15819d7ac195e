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
from .isolated_start import Barrier, View
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


_READ_ONLY_TRIAL = """
import os, sys
inside, outside = sys.argv[1:]
open(os.path.join(inside, "file"), "w").close()
try:
    open(os.path.join(outside, "file"), "w").close()
except OSError:
    sys.exit(0)
sys.exit("it can be written to")
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
            barrier = _choose_barrier(folder)
            if mode == "copy" or barrier != "none":
                return attrs.evolve(plain, mode="copy", copy=copy, barrier=barrier)
            reasons.append("neither Landlock nor read-only mounts to keep a copy's run from them")
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
        view = isolation.overlay_view(Path(name), [name], {}, None)
        folders = map(str, isolation.own_folders)
        failure = _try_view(view, Path(name), _TRIAL, str(script.resolve()), *folders)
        remove_folder(Path(name) / VIEW)
    return failure and f"no overlay mount: {failure}"


def _choose_barrier(folder: Path) -> Barrier:
    """What refuses a run on copies all other writes here."""
    if landlock.is_usable():
        return "landlock"
    return "none" if _try_read_only(folder) else "mounts"


def _try_read_only(folder: Path) -> str:
    """Enter a view with read-only mounts and write inside and outside; why that fails, or ""."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="trial-") as name:
        inside = Path(name) / "inside"
        inside.mkdir()
        view = View(str(inside), (str(inside),), barrier="mounts")
        return _try_view(view, Path(name), _READ_ONLY_TRIAL, str(inside), name)


def _try_view(view: View, folder: Path, program: str, *words: str) -> str:
    """Run a Python program in a view; the last line of its error, "" if it ends well."""
    view.save(folder / "view.json")
    result = subprocess.run(
        [*START, str(folder / "view.json"), sys.executable, "-c", program, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    lines = result.stderr.decode("utf-8", "replace").strip().splitlines()
    return (lines or [f"status {result.returncode}"])[-1] if result.returncode else ""


def _folders_in(arguments: Sequence[str]) -> Iterator[Path]:
    """The folders that arguments name, or that hold the files they name."""
    for word in arguments:
        value = Path(word.rpartition("=")[2] if word.startswith("-") else word)
        with contextlib.suppress(OSError):
            if value.name and value.exists():
                path = value.resolve()
                yield path if path.is_dir() else path.parent
