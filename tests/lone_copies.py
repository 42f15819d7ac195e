"""Copies of family A that start few processes of their own, or none.

As it is, a rank starts 16 for features and 4 for each evaluation, which takes longer than to train
a tiny model. test_main_job, test_fixtures and test_capability_loader run it so.
"""

from __future__ import annotations

from pathlib import Path

from ddpfix.fixtures.tiny import copy_family


def lone_copy(folder: Path, workers: int = 0) -> Path:
    """Copy family A, with so many workers for an evaluation; returns the path of its script."""
    script = copy_family("bigclonebench", folder)
    text = script.read_text("utf-8")
    fewer = {"cpu_cont = 16": "cpu_cont = 1", "num_workers=4": f"num_workers={workers}"}
    for old, new in fewer.items():
        assert old in text
        text = text.replace(old, new)
    script.write_text(text, "utf-8")
    return script
