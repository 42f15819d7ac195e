"""Find the config.json of a model that a script names, in a folder or in the hub's local cache.

The cache is read as huggingface_hub lays it out, without that package; the network is never asked.
"""

from __future__ import annotations

import os
from pathlib import Path

CONFIG = "config.json"


def find_config(name: str, cache: str = "") -> Path | None:
    """The config.json of a folder, or of a name in the hub; None where it is not on this machine.

    `cache` is a cache folder that the script is told of, besides that of the environment.
    """
    folder = Path(name).expanduser()
    for path in (folder / CONFIG, folder):
        if path.name.endswith(".json") and path.is_file():
            return path
    for root in _caches(cache):
        repository = root / f"models--{name.replace('/', '--')}"
        snapshots = repository / "snapshots"
        if not snapshots.is_dir():
            continue
        main = repository / "refs" / "main"
        commits = [main.read_text().strip()] if main.is_file() else []
        commits += sorted(path.name for path in snapshots.iterdir())
        for commit in commits:
            path = snapshots / commit / CONFIG
            if commit and path.is_file():
                return path
    return None


def _caches(told: str) -> list[Path]:
    """The folders that the hub's files may lie in, that of the environment last."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    base = os.environ.get("HF_HOME") or f"{home}/huggingface"
    names = [told, os.environ.get("HF_HUB_CACHE", ""), os.environ.get("TRANSFORMERS_CACHE", "")]
    return [Path(name).expanduser() for name in (*names, f"{base}/hub") if name]
