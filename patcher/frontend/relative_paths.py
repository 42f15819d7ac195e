"""Name modules as the user names scripts, from the current folder."""

from __future__ import annotations

import os
from collections.abc import Iterable


def as_named(text: str, scripts: Iterable[str]) -> str:
    """A message with the paths below the current folder relative, where those of scripts are.

    The modules that a script imports are known by their whole paths.
    """
    if all(map(os.path.isabs, scripts)):
        return text
    return text.replace(os.path.join(os.getcwd(), ""), "")
