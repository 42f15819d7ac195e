"""Read a script's text: the flags it declares, and what its batch flag counts."""

from __future__ import annotations

import re
from pathlib import Path

from ...recipes.script_flags import declared_flags

SHARED_BATCHES = b"class SharedBatchSampler("  # the mark of `ddpfix patch --exact`


def declared_flag_names(script: Path) -> frozenset[str]:
    """The flags that `script` declares, itself or in a module beside it that it imports.

    A script that declares none may run another one of its folder: then they are those of all
    scripts there. Files are read as text and nothing is imported; one that cannot be read declares
    nothing.
    """
    own = declared_flags(script)
    if own is None and script.is_file():
        beside = [declared_flags(path) or {} for path in sorted(script.parent.glob("*.py"))]
        return frozenset(flag for flags in beside for flag in flags)
    return frozenset(own or ())


def shares_batches(script: Path) -> bool:
    """Whether ``patch --exact`` patched the script: its batch flag is the batch of all ranks."""
    return script.is_file() and SHARED_BATCHES in script.read_bytes()


def batch_includes_accumulation(text: str, batch: str | None, accumulation: str | None) -> bool:
    """Whether the batch flag is the batch of a whole optimizer step of one process.

    So it is where the script divides it by the accumulation flag, as code-to-text does.
    """
    if batch is None or accumulation is None:
        return False
    over, under = (flag.lstrip("-").replace("-", "_") for flag in (batch, accumulation))
    return re.search(rf"\b{over}\s*//?\s*(\w+\.)*{under}\b", text) is not None


def script_text(path: Path) -> str:
    """The text of a script; "" where it cannot be read."""
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""
