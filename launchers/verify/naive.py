"""The two edits by sed that such scripts usually get, and edits to start the result on a CPU."""

from __future__ import annotations

import re
from pathlib import Path

from ...errors import InputError

# (what it does, pattern, replacement)
EDITS = [
    (
        "reads LOCAL_RANK right after parse_args",
        r"^([ \t]*)(\w+)( = \w+\.parse_args\(\)[^\n]*\n)",
        r'\1\2\3\1\2.local_rank = int(__import__("os").environ.get("LOCAL_RANK", -1))\n',
    ),
    (
        "evaluates during training on ranks -1 and 0",
        r"local_rank\s*==\s*-1(?=\s+and\s+\w+\.evaluate)",
        "local_rank in [-1, 0]",
    ),
]
FOR_CPU = [
    ("gloo for nccl", r"""(["'])nccl\1""", '"gloo"'),
    ("no torch.cuda.set_device", r"torch\.cuda\.set_device\([^()\n]*\)", "None"),
    (
        "device cpu",
        r"""torch\.device\(\s*(["'])cuda\1\s*,\s*[\w.]*local_rank\s*\)""",
        'torch.device("cpu")',
    ),
    (
        "no device_ids",
        r"(device_ids|output_device)\s*=\s*\[?[\w.]*local_rank\]?",
        r"\1=None",
    ),
]


def rewrite(script: Path) -> list[str]:
    """Edit ``script`` in place; returns a few words on each edit made.

    Raises InputError when one of the two usual edits does not apply.
    """
    text = script.read_text("utf-8")
    done = []
    for what, pattern, replacement in EDITS:
        text, count = re.subn(pattern, replacement, text, flags=re.MULTILINE)
        if not count:
            raise InputError(f"{script}: nothing to edit so that it {what}")
        done.append(what)
    for what, pattern, replacement in FOR_CPU:
        text, count = re.subn(pattern, replacement, text)
        if count:
            done.append(f"{what} (to start here)")
    script.write_text(text, "utf-8")
    return done
