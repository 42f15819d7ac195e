"""``python -m ddpfix`` runs nothing that lies in the current folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import LEGACY

# Imported by ddpfix at one moment or another, and names that scripts like to have.
NAMES = ("click", "attr", "attrs", "cattrs", "rich", "libcst", "tomlkit", "pynvml", "torch")
STANDARD = ("json", "random", "hashlib", "marshal", "statistics", "tomllib", "difflib", "ast")
TRAP = (
    "from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\nraise SystemExit(77)\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a script, and with modules that must not be imported."""
    for name in (*NAMES, *STANDARD):
        (tmp_path / f"{name}.py").write_text(TRAP)
    (tmp_path / "run.py").write_text(LEGACY)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--version"], 0),
        (["check", "run.py"], 1),
        (["patch", "run.py"], 1),
        (["facts", "run.py"], 0),
        (["rules"], 0),
        (["recipes"], 0),
        (["plan", "--recipe", "nowhere"], 2),
        (["status"], 0),
    ],
    ids=str,
)
def test_a_module_of_the_current_folder_is_not_run(
    folder: Path, arguments: list[str], status: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ddpfix", *arguments],
        cwd=folder,
        env=os.environ | {"XDG_STATE_HOME": str(folder / "state")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert list(folder.glob("*.ran")) == []
    assert done.returncode == status, done.stderr
