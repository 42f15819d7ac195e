"""What the text of a script tells of it: the flags it declares, and whose batch its own is."""

from __future__ import annotations

import re
from pathlib import Path

from ...recipes.script_flags import declared_flags

SHARED_BATCHES = b"class SharedBatchSampler("  # the mark of `ddpfix patch --exact`


def declared(script: Path) -> frozenset[str]:
    """The flags that `script` declares, itself or in a module beside it that it imports.

    Files are read as text and nothing is imported; one that cannot be read declares nothing.
    """
    return frozenset(declared_flags(script) or ())


def shares_batches(script: Path) -> bool:
    """Whether it is a script of ``patch --exact``, whose batch flag is that of all processes."""
    return script.is_file() and SHARED_BATCHES in script.read_bytes()


def counts_steps(text: str, batch: str | None, accumulation: str | None) -> bool:
    """Whether the batch flag of a script counts what an optimizer step takes of one process.

    It does where the script divides it by the other flag, as code-to-text does.
    """
    if batch is None or accumulation is None:
        return False
    over, under = (flag.lstrip("-").replace("-", "_") for flag in (batch, accumulation))
    return re.search(rf"\b{over}\s*//?\s*(\w+\.)*{under}\b", text) is not None


def text_of(path: Path) -> str:
    """The text of a script, empty where it cannot be read."""
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""
