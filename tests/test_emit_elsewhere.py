"""Files for cards that are not here: they name nothing of this machine, and run on another one."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT
from command_line import run
from launched import RECIPE
from test_any_script import SCRIPT

READS_DATA = SCRIPT.replace(
    "    rank = dist", '    assert open(opt.data).read() == "text"\n    rank = dist', 1
)
COMMAND = "python code/train.py ../data/train.txt --examples 16 --save_dir out/one"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a script and without its data."""
    folder = tmp_path / "laptop" / "work"
    (folder / "code").mkdir(parents=True)
    (folder / "code" / "train.py").write_text(READS_DATA)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return folder


def emit(kind: str, cards: str, *words: str) -> str:
    done = run("launch", "--gpus", cards, "--emit", kind, *words)
    assert done.exit_code == 0, done.output
    return done.stdout


def script_words(text: str, script: str = "code/train.py") -> list[str]:
    """The script and its arguments in a file."""
    words = shlex.split(text.replace("\\\n", ""), comments=True)
    rest = words[words.index(script) :]
    return rest[: rest.index("&")] if "&" in rest else rest


def on_a_cluster(tmp_path: Path, text: str) -> list[object]:
    """What the script says it was given where this file is started in a folder with the data."""
    work, bin_ = tmp_path / "cluster" / "work", tmp_path / "bin"
    (work / "code").mkdir(parents=True)
    (work / "code" / "train.py").write_text(READS_DATA)
    (work.parent / "data").mkdir()
    (work.parent / "data" / "train.txt").write_text("text")
    bin_.mkdir()
    programs = {
        "python": f'exec {sys.executable} "$@"',
        "scontrol": "echo 127.0.0.1",
        "srun": 'while [[ $1 == --* ]]; do shift; done; exec "$@"',
    }
    for name, line in programs.items():
        (bin_ / name).write_text(f"#!/usr/bin/env bash\n{line}\n")
        (bin_ / name).chmod(0o755)
    (tmp_path / "job.sh").write_text(text)
    environ = os.environ | {
        "PATH": f"{bin_}:/usr/bin:/bin",
        "SLURM_JOB_ID": str(10**6 + os.getpid()),  # of which the port is made: not another's
        "SLURM_JOB_NODELIST": "n",
        "SLURM_JOB_NUM_NODES": "1",
    }
    done = subprocess.run(
        ["bash", str(tmp_path / "job.sh")], cwd=work, env=environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    seen: list[object] = json.loads((work / "out/one/seen.json").read_text())
    return seen


@pytest.mark.parametrize(
    ("kind", "world"), [("bash", 1), ("bash", 8), ("sbatch", 1), ("sbatch", 8), ("torchrun", 2)]
)
def test_a_file_names_nothing_of_this_machine(kind: str, world: int, here: Path) -> None:
    text = emit(kind, f"{world}x A100 80GB", "--", *shlex.split(COMMAND))
    assert script_words(text) == [
        *("code/train.py", "--examples", str(16 // world), "--wait", "1"),
        *("../data/train.txt", "--save_dir", "out/one"),
    ]
    for place in (here, here.parent, ROOT, sys.prefix, Path.home(), os.environ["XDG_STATE_HOME"]):
        assert str(place) not in text.replace("#!/usr/bin/env", "")
    assert [path.name for path in here.rglob("*")] == ["code", "train.py"]


@pytest.mark.parametrize("kind", ["bash", "sbatch"])
@pytest.mark.usefixtures("here")
def test_it_runs_where_the_data_is(kind: str, tmp_path: Path) -> None:
    text = emit(kind, "2x T4", "--", "COLOUR=red", *shlex.split(COMMAND))
    assert on_a_cluster(tmp_path, text) == [2, 8, 1, "../data/train.txt", "red"]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("cores", [2, 128])
def test_threads_and_cores_are_not_those_of_this_machine(
    cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr("ddpfix.launchers.backends.command.available_cores", lambda: cores)
    words = ("--", *shlex.split(COMMAND))
    assert "export OMP_NUM_THREADS=4\n" in emit("bash", "8x T4", *words)
    job = emit("sbatch", "8x T4", *words)
    assert "#SBATCH --cpus-per-task=32\n" in job
    assert "srun --kill-on-bad-exit=1 --cpus-per-task=32 " in job
    monkeypatch.setenv("OMP_NUM_THREADS", "6")
    assert "#SBATCH --cpus-per-task=48\n" in emit("sbatch", "8x T4", *words)


@pytest.mark.usefixtures("here")
def test_the_interpreter_of_the_command_is_not_looked_for_here() -> None:
    command = COMMAND.replace("python", "/shared/env/bin/python")
    text = emit("bash", "2x T4", "--", *shlex.split(command))
    assert "exec /shared/env/bin/python -m torch.distributed.run" in text
    text = emit("bash", "2x T4", "--python", "/shared/other/bin/python", "--", *command.split())
    assert "exec /shared/other/bin/python -m torch.distributed.run" in text


@pytest.mark.usefixtures("here")
def test_a_job_has_the_cards_that_it_gets_and_not_those_of_the_command() -> None:
    command = shlex.split(f"CUDA_VISIBLE_DEVICES=0,1 {COMMAND}")
    assert "CUDA_VISIBLE_DEVICES" not in emit("sbatch", "4x T4", "--", *command)
    assert "export CUDA_VISIBLE_DEVICES=0,1,2,3\n" in emit("bash", "4x T4", "--", *command)


@pytest.mark.parametrize("kind", ["bash", "sbatch"])
def test_a_recipe_needs_no_data_here_either(kind: str, here: Path) -> None:
    (here / "run.py").write_text("import argparse\n")
    data = '[data]\nfolder = "../data"\nfiles = { "--train" = "train.txt" }\n'
    before, _, after = RECIPE.partition("[data]")
    rest = after[after.index("\n[") + 1 :] if "\n[" in after else ""
    (here / "own.toml").write_text(before + data + rest)
    words = ["--recipe", "own.toml", "--script", "run.py", "--unchecked"]
    found = script_words(emit(kind, "2x T4", *words), "run.py")
    assert found[found.index("--train") + 1] == "../data/train.txt"
    out = next(word for word in found if word.startswith(".ddpfix/runs/"))
    assert not Path(out).is_absolute()
    refused = run("launch", "--cpu", "--emit", "bash", *words)
    assert (refused.exit_code, "is no file" in refused.stderr) == (2, True)
