"""docs/first-hour.md: its script and commands, followed in an empty folder, and what it shows."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import ROOT

PAGE = (ROOT / "docs" / "first-hour.md").read_text()
README = (ROOT / "README.md").read_text()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "digits"
    folder.mkdir()
    [script] = re.findall(r"<!-- the script -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    (folder / "train.py").write_text(script)
    for words in (
        ["init", "-q", "."],
        ["add", "-A"],
        ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "As found"],
    ):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


def shown() -> Iterator[tuple[str, list[str]]]:
    """The page's commands with the lines that it shows of each, parts between … on their own."""
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, [piece.strip() for piece in re.split(r"…|\n", output) if piece.strip()]


def run(folder: Path, command: str) -> str:
    words = shlex.split(command)
    if words[0] == "ddpfix":
        words = [sys.executable, "-m", *words]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    assert done.returncode == int(words[3:4] in (["check"], ["patch"])), done.stdout + done.stderr
    return " ".join((done.stdout + done.stderr).split())


def is_steady(line: str) -> bool:
    """Whether a line holds no times, paths or roundings of one run."""
    return not re.search(r"\d\.\de-\d\d|^epoch|^The run finished after|^train.py \| ", line)


def test_its_commands_lead_from_the_old_script_to_a_verified_run(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(repository.parent / "state"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    commands = list(shown())
    for command, lines in commands:
        output = run(repository, command)
        if " verify " in command:
            assert output.count(" holds ") == 9, output
            assert (
                "C3 every world size and accumulation trains the same holds 1 run of 40" in output
            )
        if " launch " in command:
            assert len(re.findall(r"epoch \d: loss \S+ accuracy \S+", output)) == 3, output
        steady = [line for line in lines if is_steady(line)]
        assert steady or "stat" in command
        for line in steady:
            assert " ".join(line.split()) in output, line
    assert (repository / "saved" / "model.pt").exists()


def test_the_readme_tells_of_the_same_commands_in_the_same_order() -> None:
    ours = [command.split()[1] for command, _ in shown() if command.startswith("ddpfix")]
    [block] = re.findall(r"## Use\n.*?```sh\n(.*?)```", README, re.DOTALL)
    assert ours == [line.split()[1] for line in block.splitlines()]
    assert ours == ["check", "patch", "verify", "launch", "report"]
