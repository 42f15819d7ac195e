"""This checkout, as a user gets it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def copy_checkout(folder: Path) -> Path:
    """Copy all files that git does not ignore, so that no build folder has a say."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


class ImportedCopy:
    """A copy of the checkout, and processes that import the package from there."""

    def __init__(self, folder: Path) -> None:
        self.root = copy_checkout(folder / "checkout")
        (folder / "path").mkdir()
        (folder / "path" / "ddpfix").symlink_to(self.root)
        scripts = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        # Bytecode is kept: else each process compiles the whole package.
        inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        self.environment = inherited | {"PYTHONPATH": str(folder / "path"), "PATH": scripts}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run ``python`` with these arguments in the copy."""
        return self.command([sys.executable, *arguments])

    def command(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def files(self) -> dict[str, bytes]:
        """The bytes of the package's, the tests' and the documents' files, by path."""
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for folder in ("patcher", "tests", "docs")
            for path in (self.root / folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
