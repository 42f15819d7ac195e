"""Flags and names of scripts that a back end could take for its own options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import run
from ddpfix.launchers.backends.registry import launcher_command
from launched import RECIPE

# Abbreviations of torchrun's options, its options themselves, and what ends options.
FLAGS = [
    *("--log", "x", "--run", "2", "--num", "3", "--max", "4", "--start", "5", "--help", "-h", "-m"),
    *("--nnodes", "9", "--module", "--config_file", "x", "--num_processes", "7", "--", "--after"),
]
WRITE = """
import json, os, sys
with open("heard.json", "w") as file:
    json.dump([sys.argv, os.environ.get("RANK")], file)
"""


def heard(backend: str, *prefix: str) -> tuple[str, list[str], bool]:
    """What a back end takes for the script, for its arguments, and whether for a module."""
    words = launcher_command(backend, 2, 1, prefix, restarts=0)
    if backend == "accelerate":
        accelerate = pytest.importorskip("accelerate.commands.launch")
        parser = accelerate.launch_command_parser()
        words = words[words.index("launch") + 1 :]
    else:
        run_module = pytest.importorskip("torch.distributed.run")
        parser = run_module.get_args_parser()
        words = words[words.index("--nnodes") :]
    if not prefix:
        words = [*words, "run.py"]
    asked = parser.parse_args([*words, *FLAGS])
    return asked.training_script, asked.training_script_args, bool(asked.module)


@pytest.mark.parametrize("backend", ["torchrun", "slurm", "accelerate"])
def test_flags_of_the_script_are_its_own(backend: str) -> None:
    assert heard(backend) == ("run.py", FLAGS, False)
    assert heard(backend, "-m", "a.module", "--out", "x") == (
        "a.module",
        ["--out", "x", *FLAGS],
        True,
    )


@pytest.mark.parametrize(("processes", "rank"), [("1", None), ("2", "1")])
def test_a_script_may_be_named_as_an_option_is(
    processes: str, rank: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "own.toml").write_text(RECIPE)
    only_last = "import os, sys\nif os.environ.get('RANK') == '0':\n    sys.exit()\n"
    (tmp_path / "-r.py").write_text(only_last + WRITE)
    words = ["--recipe", "own.toml", "--script", "-r.py", "--cpu", "--processes", processes]
    backend = ["--backend", "direct"] if rank else []
    done = run("launch", *words, *backend, "--", "--log", "x")
    assert done.exit_code == 0, done.output
    argv, seen = json.loads((tmp_path / "heard.json").read_text())
    assert (argv[0], argv[-2:], seen) == ("./-r.py", ["--log", "x"], rank)


def test_a_file_that_is_emitted_holds_the_end_of_torchruns_options(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(RECIPE)
    (tmp_path / "run.py").write_text("")
    where = ["--recipe", tmp_path / "own.toml", "--script", tmp_path / "run.py", "--cpu"]
    text = run("launch", *where, "--emit", "torchrun").stdout
    assert f" -- \\\n    {tmp_path / 'run.py'} \\\n    --batch " in text


RANKS = "import os, sys\nsys.exit(3 if os.environ['RANK'] == '1' else 0)\n"


@pytest.mark.parametrize("backend", ["torchrun", "accelerate"])
def test_nothing_is_left_in_the_temporary_folder(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "own.toml").write_text(RECIPE)
    (tmp_path / "run.py").write_text(RANKS)
    words = ["--recipe", "own.toml", "--cpu", "--processes", "2", "--backend", backend]
    done = run("launch", *words)
    assert done.exit_code == 1, done.output
    assert "Rank 1 failed first, with exit status 3" in done.stderr
    assert [path.name for path in (tmp_path / "tmp").glob("torchelastic*")] == []
