"""Which flags a script declares, itself or in the modules beside it."""

from __future__ import annotations

import re
from pathlib import Path

FLAG = re.compile(r"""["'](--[\w-]+)["']""")


def declared(script: Path) -> frozenset[str]:
    """Every flag that is a string in `script` or in a module beside it.

    Files are read as text and nothing is imported; one that cannot be read declares nothing.
    """
    return frozenset(
        flag for path in script.parent.glob("*.py") for flag in FLAG.findall(_text(path))
    )


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""
