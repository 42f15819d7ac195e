"""State directory and atomic writes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from .private_files import close_to_others, make_private_folder


def state_folder(environ: Mapping[str, str] | None = None) -> Path:
    """The folder for data of earlier runs: $XDG_STATE_HOME/ddpfix or ~/.local/state/ddpfix.

    A relative $XDG_STATE_HOME is ignored (XDG Base Directory Specification 0.8).
    """
    environ = os.environ if environ is None else environ
    state = Path(environ.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():
        state = Path.home() / ".local" / "state"
    return state / "ddpfix"


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that it is complete or unchanged; makes its folder. Raises OSError.

    Of several processes that write it at the same moment, the last one's text stays.
    """
    import tempfile  # most commands write nothing

    if path.is_relative_to(state_folder()):
        close_to_others(state_folder())
    make_private_folder(path.parent)
    number, name = tempfile.mkstemp(prefix=f"{path.stem}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink()
        raise
