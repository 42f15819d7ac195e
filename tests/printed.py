"""Programs that have a Python, and torch, to themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def printed(program: Path, *arguments: str) -> Any:
    """The JSON that a program prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program), *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)
