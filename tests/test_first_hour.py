"""docs/first-hour.md: its commands, in a scratch repository, and the lines that it shows."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import ROOT
from ddpfix.fixtures.tiny import build_clone_data, build_model, copy_family

PAGE = (ROOT / "docs" / "first-hour.md").read_text()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("old")
    copy_family("bigclonebench", folder)
    build_model(folder / "model", "roberta")
    build_clone_data(folder / "data", train=48, valid=13, test=11)
    for words in (
        ["init", "-q", "."],
        ["add", "-A"],
        ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "As found"],
    ):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


def todays_arguments() -> list[str]:
    """The arguments of the command in the page's first block."""
    [block] = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    words = shlex.split(block.replace("\\\n", " "))
    assert words[:2] == ["python", "run.py"]
    return words[2:]


def shown() -> Iterator[tuple[str, list[str]]]:
    """The page's commands with the lines that it shows of each, parts between … on their own."""
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, [piece.strip() for piece in re.split(r"…|\n", output) if piece.strip()]


def run(folder: Path, command: str, *more: str) -> str:
    words = shlex.split(command)
    place = words.index("ARGUMENTS") if "ARGUMENTS" in words else len(words)
    words[place : place + 1] = todays_arguments() if place < len(words) else []
    if words[0] == "ddpfix":
        words = [sys.executable, "-m", *words[:2], *more, *words[2:]]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    assert done.returncode in ((0, 1, 2) if "verify" in words else (0, 1)), done.stderr
    return " ".join((done.stdout + done.stderr).split())


def is_steady(line: str) -> bool:
    """Whether a line holds no times, paths or roundings of one run."""
    return not re.search(r"\d\.\de-\d\d|2026-|^The run finished after|log:|F1|^\)\);|^1 file", line)


def test_four_commands_lead_from_the_old_script_to_a_verified_run(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(repository.parent / "state"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    commands = list(shown())
    ours = [command.split()[1] for command, _ in commands if command.startswith("ddpfix")]
    assert ours == ["check", "patch", "verify", "launch"]
    for command, lines in commands:
        is_proof = " verify " in command
        # A second accumulation proves C7 alone, and takes a fifth of the time.
        output = run(repository, command, *["--accumulation", "1"] * is_proof)
        if is_proof:
            assert "C2 one process computes what the original did holds" in output
            assert "C3 every world size and accumulation trains the same holds" in output
            assert "broken" not in output
            lines = [line for line in lines if line.startswith(("✓ C5", "✓ C8"))]
        for line in filter(is_steady, lines):
            assert " ".join(line.split()) in output, line
    assert (repository / "saved" / "checkpoint-best-f1" / "model.bin").exists()
