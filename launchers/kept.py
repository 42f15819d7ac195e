"""Small files of the state folder, which are there as a whole or not at all."""

from __future__ import annotations

from pathlib import Path


def keep(path: Path, text: str) -> None:
    """Replace what a file holds, in a folder that is made for it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
