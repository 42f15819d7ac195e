"""The hooks, run by pre-commit itself in a scratch repository."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT, copy_checkout

DATA_PARALLEL_ONLY = (ROOT / "fixtures" / "shapes" / "dataparallel_only.py").read_text()
CLEAN = "import torch\n\n\ndef forward(model, batch):\n    return model(batch)\n"


def git(folder: Path, *arguments: str) -> str:
    variables = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    done = subprocess.run(
        ["git", *identity, *arguments],
        cwd=folder,
        env=variables,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def committed(folder: Path) -> str:
    """Make ``folder`` a repository with one commit of everything, and return that."""
    git(folder, "init", "-q")
    git(folder, "add", "--all")
    git(folder, "commit", "-q", "--allow-empty", "-m", "everything")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A repository with ddpfix's hooks, and pre-commit's own folder, where it builds them once."""
    source = copy_checkout(tmp_path_factory.mktemp("ddpfix"))
    committed(source)
    return source, tmp_path_factory.mktemp("pre-commit")


@pytest.fixture
def scratch(tmp_path: Path, hooks: tuple[Path, Path]) -> Path:
    source, _ = hooks
    folder = tmp_path / "scratch"
    folder.mkdir()
    (folder / ".pre-commit-config.yaml").write_text(
        f"repos:\n- repo: {source}\n  rev: {git(source, 'rev-parse', 'HEAD')}\n"
        "  hooks: [{id: ddpfix-check}, {id: ddpfix-patch}]\n"
    )
    (folder / "clean.py").write_text(CLEAN)
    return folder


def pre_commit(folder: Path, home: Path, hook: str) -> subprocess.CompletedProcess[str]:
    committed(folder)
    variables = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    variables |= {
        "PRE_COMMIT_HOME": str(home),
        "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
    }
    return subprocess.run(
        [sys.executable, "-m", "pre_commit", "run", "--all-files", hook],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )


def test_clean_scripts_pass(scratch: Path, hooks: tuple[Path, Path]) -> None:
    done = pre_commit(scratch, hooks[1], "ddpfix-check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Passed" in done.stdout


def test_a_data_parallel_script_is_flagged_and_then_repaired(
    scratch: Path, hooks: tuple[Path, Path]
) -> None:
    script = scratch / "run.py"
    script.write_text(DATA_PARALLEL_ONLY)
    flagged = pre_commit(scratch, hooks[1], "ddpfix-check")
    assert flagged.returncode == 1, flagged.stderr
    assert "DF201 error: The script knows DataParallel only" in flagged.stdout
    assert script.read_text() == DATA_PARALLEL_ONLY
    repaired = pre_commit(scratch, hooks[1], "ddpfix-patch")
    assert repaired.returncode == 1, repaired.stderr
    assert "files were modified by this hook" in repaired.stdout
    assert script.read_text() != DATA_PARALLEL_ONLY
    assert (scratch / "clean.py").read_text() == CLEAN
    for hook in ("ddpfix-patch", "ddpfix-check"):
        again = pre_commit(scratch, hooks[1], hook)
        assert again.returncode == 0, again.stdout
