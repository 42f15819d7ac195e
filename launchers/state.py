"""The state folder, and its small files, which are there as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def state_folder(environ: Mapping[str, str] | None = None) -> Path:
    """What is kept from one run to the next: $XDG_STATE_HOME/ddpfix, else ~/.local/state/ddpfix.

    A relative $XDG_STATE_HOME is ignored (XDG Base Directory Specification 0.8).
    """
    environ = os.environ if environ is None else environ
    state = Path(environ.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():
        state = Path.home() / ".local" / "state"
    return state / "ddpfix"


def keep(path: Path, text: str) -> None:
    """Replace what a file holds, in a folder that is made for it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
