"""The command line starts with little, and ends well whatever becomes of its output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT
from command_line import LEGACY
from launched import RECIPE

HEAVY = {"torch", "libcst", "rich", "attrs", "cattrs", "numpy", "accelerate", "transformers"}
# What only some launches need, or those alone that have started their ranks.
UNUSED = ["torch", "transformers", "libcst", "rich", "pynvml", "importlib.metadata"]
PLANLESS = [*UNUSED, "attrs", "attr", "cattrs", "subprocess"]
PLANLESS.remove("importlib.metadata")  # which says whether shipped predictions apply
UNUSED += [
    "ddpfix.launchers.gpus.simulated",
    "ddpfix.launchers.backends.rendezvous",
    "ddpfix.launchers.running.failure",
]


def start(
    *arguments: object, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "ddpfix", *map(str, arguments)],
        env=os.environ | (environment or {}),
        capture_output=True,
        check=False,
    )


def test_commands_and_options_are_reached() -> None:
    assert b"DF203" in start("explain", "DF203").stdout
    assert start("check").returncode == 2
    assert b"Usage: " in start("check", "--help").stdout


SHARDED = (ROOT / "fixtures" / "shapes" / "sharded_by_hand.py").read_text()


SCRIPTS = [(LEGACY, "DF203"), (SHARDED, "DF403"), (f"import os  # noqa: F401\n{LEGACY}", "DF203")]


@pytest.mark.parametrize(("text", "code"), SCRIPTS)
def test_a_check_imports_neither_torch_nor_libcst(tmp_path: Path, text: str, code: str) -> None:
    script = tmp_path / "run.py"
    script.write_text(text)
    words = [sys.executable, "-X", "importtime", "-m", "ddpfix", "check", str(script)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert code in done.stdout
    found = told(done.stderr)
    assert "ddpfix.patcher.engine.check" in found
    assert found.isdisjoint(HEAVY)


def imported(words: list[str], folder: Path, said: str) -> set[str]:
    """What a command imports that says this."""
    command = [sys.executable, "-X", "importtime", "-m", "ddpfix", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    return told(done.stderr)


def told(stderr: str) -> set[str]:
    """The modules that ``-X importtime`` tells of."""
    return {line.rpartition("|")[2].strip() for line in stderr.splitlines()}


def test_a_launch_on_the_cpu_imports_nothing_that_it_does_not_use(tmp_path: Path) -> None:
    (tmp_path / "run.py").touch()
    (tmp_path / "own.toml").write_text(RECIPE)
    words = ["launch", "--recipe", "./own.toml", "--cpu", "--dry-run"]
    found = imported(words, tmp_path, "--multi_gpu")
    assert "ddpfix.launchers.backends.command" in found
    assert found.isdisjoint(UNUSED)


def test_a_plan_that_is_known_imports_nothing_that_it_does_not_use(tmp_path: Path) -> None:
    words = ["plan", "--recipe", "codegpt-bigclonebench", "--gpus", "2x RTX 6000 Ada"]
    found = imported(words, tmp_path, "memory: ")
    assert "ddpfix.launchers.planning.memory_fit" in found
    assert found.isdisjoint(PLANLESS)


def test_a_script_that_needs_no_edit_needs_no_libcst(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text(LEGACY.replace("args.n_gpu", "max(1, args.n_gpu)"))
    found = imported(["patch", "run.py"], tmp_path, "")
    assert "ddpfix.patcher.engine.check" in found
    assert found.isdisjoint({"libcst", "rich", "torch"})


@pytest.mark.parametrize(
    ("command", "first"),
    [
        ("check --output-format concise", "{}/run.py:3:5: DF203"),
        ("patch --dry-run", "--- a{}/run.py"),
    ],
)
def test_a_reader_that_has_seen_enough_is_no_error(
    tmp_path: Path, command: str, first: str
) -> None:
    line = f"x = batch // args.n_gpu  # {'-' * 3000}\n"
    (tmp_path / "run.py").write_text(LEGACY + line * 100)
    command = f"{sys.executable} -m ddpfix {command} {tmp_path} | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout.startswith(first.format(tmp_path))
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.parametrize("command", ["check", "check --no-cache", "patch --dry-run"])
def test_a_reader_that_has_left_before_the_end_is_no_error(tmp_path: Path, command: str) -> None:
    (tmp_path / "run.py").write_text(LEGACY)  # all that is said of it fits the buffer
    reading, writing = os.pipe()
    os.close(reading)
    words = [sys.executable, "-m", "ddpfix", *command.split(), str(tmp_path)]
    done = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.parametrize("command", ["check", "check --no-cache", "patch --dry-run"])
def test_nothing_is_taken_apart_at_the_end(tmp_path: Path, command: str) -> None:
    """Trees of many files take as long to be freed as to be checked."""
    (tmp_path / "run.py").write_text(LEGACY)
    begin = "import atexit; atexit.register(print, 'freed'); from ddpfix.cli import main; main()"
    words = [sys.executable, "-c", begin, *command.split(), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "n_gpu" in done.stdout
    assert "freed" not in done.stdout


def test_a_name_that_the_locale_cannot_say_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "prüfung.py").write_text(LEGACY)
    done = start("check", tmp_path, environment={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 1
    assert b"pr\\xfcfung.py\n  DF203" in done.stdout
