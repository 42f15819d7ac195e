"""The command as a line and as files: what they say, and what their programs make of them."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from accelerate.commands.config.config_args import load_config_from_file
from ddpfix import __version__
from ddpfix.errors import InputError
from ddpfix.launchers.backends.command import Command, ProcessOptions, ScriptCall, build
from ddpfix.launchers.backends.export import Launch, backend_for, export_launch
from ddpfix.launchers.backends.registry import ShellWord, find_program
from ddpfix.launchers.planning.plan import solve
from ddpfix.recipes.model import Recipe
from ddpfix.recipes.parse import parse
from hypothesis import example, given, settings
from hypothesis import strategies as st

RECIPE = """
description = "for tests"
family = "test"
script = "run.py"
task = "to be launched"
[flags]
train_batch = "--batch"
eval_batch = "--eval_batch"
accumulation = "--accumulation"
output = "--out"
[batch]
global_batch = 64
per_device_cap = 16
eval_per_device = 4
[data]
folder = "."
files = {}
[output]
folder = "made"
"""

# Each rank writes down its arguments and environment.
DUMP = """
import json, os, sys
with open(os.path.join(os.environ["HEARD"], os.environ.get("RANK", "none")), "w") as file:
    json.dump({"argv": sys.argv[1:], "env": dict(os.environ)}, file)
"""

AWKWARD = ["two words", "it's", "a\nb", "a;b", "$(id)", "`id`", "$$", "${local_rank}", "*", "", "é"]

# What a process can be given: anything without a null byte that UTF-8 can carry.
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
# Not PATH, nor what a shell keeps for itself.
NAMES = st.from_regex(r"X_[A-Za-z0-9_]{0,6}", fullmatch=True)


def recipe(name: str = "own") -> Recipe:
    return parse(RECIPE, source="own.toml", name=name)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    folder = tmp_path / "a 'folder'"
    folder.mkdir()
    path = folder / "run.py"
    path.write_text(DUMP)
    return path


def launch(
    script: Path,
    world: int = 2,
    *,
    cards: tuple[int, ...] | None = (),
    backend: str | None = None,
    extra: Sequence[str] = (),
    name: str = "own",
) -> Launch:
    plan = solve(world, 64, 16)
    environ = {"OMP_NUM_THREADS": "1"}
    command = build(
        ScriptCall(recipe(name), script, plan, Path("/runs/a"), extra),
        ProcessOptions(cards, backend),
        environ=environ,
    )
    return Launch(name, command, script, plan, cards, script.parent)


def hostile(home: Path) -> dict[str, str]:
    """An environment in which every launcher that may listen is told something else."""
    config = home / "hf" / "accelerate" / "default_config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 4\n"
        "mixed_precision: fp16\ngpu_ids: 0,1,2\ndebug: true\nmain_process_port: 1\n"
    )
    told = {
        "HF_HOME": str(home / "hf"),
        "PET_NPROC_PER_NODE": "1",
        "PET_NNODES": "3",
        "PET_MAX_RESTARTS": "many",
        "PYTHON_EXEC": "/bin/false",
        "ACCELERATE_MIXED_PRECISION": "fp16",
        "RANK": "5",
        "WORLD_SIZE": "7",
        "MASTER_PORT": "1",
    }
    return dict(os.environ) | told


def heard(folder: Path, argv: Sequence[str], environ: Mapping[str, str]) -> dict[str, list[str]]:
    """What each rank was given when this had run, and that no precision was asked of it."""
    folder.mkdir()
    done = subprocess.run(
        argv, env={**environ, "HEARD": str(folder)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    dumps = {path.name: json.loads(path.read_text()) for path in folder.iterdir()}
    assert {dump["env"].get("ACCELERATE_MIXED_PRECISION", "no") for dump in dumps.values()} == {
        "no"
    }
    return {rank: dump["argv"] for rank, dump in dumps.items()}


def written(folder: Path, text: str) -> str:
    path = folder / "file"
    path.write_bytes(os.fsencode(text))
    return str(path)


# --- words ---


@settings(max_examples=60, deadline=None)
@given(st.lists(WORDS, max_size=6), st.dictionaries(NAMES, WORDS, max_size=3))
@example([*AWKWARD, "\\", "\r", "--", "!!", "~", "#", "\x85"], {"A": "$(id)\n'\""})
def test_a_shell_makes_the_very_words_and_variables_of_line_and_file(
    words: list[str], variables: dict[str, str]
) -> None:
    own = 'printf "%s\\0" "$@"; env -0'
    command = Command(("sh", "-c", own, "sh", *words), variables)
    file = export_launch(
        "bash", Launch("x", command, Path("run.py"), solve(1, 1, 1), (), Path("/"))
    )
    for shell in (["sh", "-c", command.line], ["bash", "-c", file]):
        done = subprocess.run(shell, env={"PATH": os.environ["PATH"]}, stdout=subprocess.PIPE)
        parts = done.stdout.split(b"\0")
        assert parts[: len(words)] == [word.encode() for word in words]
        assert {f"{k}={v}".encode() for k, v in variables.items()} <= set(parts[len(words) :])


def test_only_what_is_meant_to_be_expanded_is() -> None:
    command = Command(("echo", "$HOME", ShellWord('"$HOME"')), {})
    assert command.line == "env echo '$HOME' \"$HOME\""


# --- the same ranks from the printed line, whatever surrounds it ---


@pytest.mark.parametrize("backend", ["torchrun", "direct"])
def test_against_a_contrary_environment_the_printed_line_starts_what_was_planned(
    backend: str, script: Path, tmp_path: Path
) -> None:
    environ = hostile(tmp_path)
    plan = solve(2, 64, 16)
    command = build(
        ScriptCall(recipe(), script, plan, Path("/r"), extra=AWKWARD),
        ProcessOptions(backend=backend),
        environ=environ,
    )
    ranks = heard(tmp_path / "heard", ["sh", "-c", command.line], environ)
    asked = ["--batch", "16", "--eval_batch", "4", "--accumulation", "2", "--out", "/r/made"]
    assert ranks == {"0": [*asked, *AWKWARD], "1": [*asked, *AWKWARD]}
    assert {"PET_NNODES", "PYTHON_EXEC", "RANK", "ACCELERATE_MIXED_PRECISION"} <= set(command.unset)


def test_torchrun_would_have_listened(script: Path, tmp_path: Path) -> None:
    bare = [sys.executable, "-m", "torch.distributed.run", "--standalone", str(script)]
    environ = dict(os.environ) | {"PET_NPROC_PER_NODE": "3"}
    assert set(heard(tmp_path / "heard", bare, environ)) == {"0", "1", "2"}


# --- files ---


def test_the_bash_script_holds_folder_variables_and_command(script: Path) -> None:
    one = launch(script, backend="direct", cards=(0, 1), extra=["--lr", "a b"])
    own = Path(sys.executable).parent
    by = f"Written by ddpfix {__version__}."
    assert (
        export_launch("bash", one)
        == f"""\
#!/usr/bin/env bash
# own: global batch 64 = 16 per device x 2 accumulated x 2 processes. {by}
set -euo pipefail
cd -- {shlex.quote(str(script.parent))}
export PATH={own}:"$PATH"
unset RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT PYTHON_EXEC \
"${{!PET_@}}" "${{!TORCHELASTIC_@}}" "${{!ACCELERATE_@}}"
export CUDA_VISIBLE_DEVICES=0,1
export CUDA_DEVICE_ORDER=PCI_BUS_ID
export OMP_NUM_THREADS=1
export PYTHONUNBUFFERED=1

exec {find_program("python")} -P -m ddpfix.launchers.running.direct_launcher \\
    --processes 2 \\
    {shlex.quote(str(script))} \\
    --batch 16 \\
    --eval_batch 4 \\
    --accumulation 2 \\
    --out /runs/a/made \\
    --lr 'a b'
"""
    )


def test_the_torchrun_script_starts_what_was_planned_whatever_surrounds_it(
    script: Path, tmp_path: Path
) -> None:
    text = export_launch("torchrun", launch(script, backend="torchrun", extra=AWKWARD))
    assert "torchrun \\\n    --nnodes 1 \\\n    --nproc-per-node 2 \\\n" in text
    file = written(tmp_path, text)
    ranks = heard(tmp_path / "heard", ["bash", file], hostile(tmp_path))
    assert set(ranks) == {"0", "1"}
    assert all(argv[-len(AWKWARD) :] == AWKWARD for argv in ranks.values())


def test_the_accelerate_config_starts_two_ranks_on_the_cpu(script: Path, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(export_launch("accelerate-config", launch(script)))
    command = [str(Path(sys.executable).with_name("accelerate")), "launch"]
    environ = {k: v for k, v in hostile(tmp_path).items() if not k.startswith(("PET_", "PYTHON_"))}
    argv = [*command, "--config_file", str(file), str(script), "a b"]
    environ |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    assert heard(tmp_path / "heard", argv, environ) == {"0": ["a b"], "1": ["a b"]}


@pytest.mark.parametrize(
    ("world", "cards", "kind", "ids"),
    [
        (2, (3, 1), "MULTI_GPU", "3,1"),
        (1, (2,), "NO", "2"),
        (1, (), "NO", "all"),
    ],
)
def test_accelerate_reads_its_config_as_it_is_meant(
    world: int, cards: tuple[int, ...], kind: str, ids: str, script: Path, tmp_path: Path
) -> None:
    file = tmp_path / "config.yaml"
    name = "two\nlines: [\x07"
    file.write_text(
        export_launch("accelerate-config", launch(script, world, cards=cards, name=name))
    )
    config = load_config_from_file(str(file))
    assert config.num_processes == world
    assert config.distributed_type == kind
    assert config.gpu_ids == ids
    assert config.mixed_precision == "no"
    assert config.use_cpu is (not cards)
    assert config.dynamo_config == {"dynamo_backend": "NO"}


def test_the_job_asks_for_cards_cores_a_signal_and_to_be_queued_again(script: Path) -> None:
    of_cards = launch(script, 4, cards=None, backend="slurm", name="a name\n#SBATCH --exclusive")
    text = export_launch("sbatch", of_cards)
    asked = [line.split("=") for line in text.splitlines() if line.startswith("#SBATCH")]
    assert asked == [
        ["#SBATCH --job-name", "a_name_SBATCH_--exclusive"],
        ["#SBATCH --nodes", "1"],
        ["#SBATCH --ntasks-per-node", "1"],
        ["#SBATCH --cpus-per-task", "4"],
        ["#SBATCH --gpus-per-node", "4"],
        ["#SBATCH --signal", "B:USR1@120"],
        ["#SBATCH --open-mode", "append"],
        ["#SBATCH --requeue"],
    ]
    assert "CUDA_VISIBLE_DEVICES" not in text  # Slurm sets it
    on_cpu = export_launch("sbatch", launch(script, 4, backend="slurm"))
    assert "export CUDA_VISIBLE_DEVICES=''" in on_cpu
    assert "gpus-per-node" not in on_cpu


# Slurm's two programs as far as the job needs them: the step runs here and passes a signal to all
# its processes, and what is asked of the controller is written down.
SRUN = f"""#!{sys.executable}
import signal, subprocess, sys, psutil
words = sys.argv[1:]
while words[0].startswith("--"):
    del words[0]
task = subprocess.Popen(words)
def tell(number, _):
    for process in psutil.Process().children(recursive=True):
        process.send_signal(number)
signal.signal(signal.SIGUSR1, tell)
sys.exit(task.wait())
"""
SCONTROL = '#!/bin/sh\n[ "$1" = show ] && echo 127.0.0.1 || echo "$@" >>"$HEARD.scontrol"\n'
SAVE = """
import os, signal, sys, time
name = os.path.join(os.environ["HEARD"], os.environ["RANK"])
def save(*_):
    open(name + ".saved", "w").close()
    sys.exit()
signal.signal(signal.SIGUSR1, save)
open(name, "w").close()
while True:
    time.sleep(0.02)
"""


def as_a_job(folder: Path) -> dict[str, str]:
    """An environment like that of a job on one node."""
    (folder / "bin").mkdir()
    for name, text in {"srun": SRUN, "scontrol": SCONTROL}.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    path = os.pathsep.join([str(folder / "bin"), os.environ["PATH"]])
    slurm = {"SLURM_JOB_ID": "77", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "here"}
    return dict(os.environ) | slurm | {"PATH": path}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_job_starts_its_ranks_by_torchrun(script: Path, tmp_path: Path) -> None:
    file = written(
        tmp_path, export_launch("sbatch", launch(script, backend="slurm", extra=AWKWARD))
    )
    ranks = heard(tmp_path / "heard", ["bash", file], as_a_job(tmp_path))
    assert set(ranks) == {"0", "1"}
    assert all(argv[-len(AWKWARD) :] == AWKWARD for argv in ranks.values())


def test_short_of_its_end_the_job_lets_its_ranks_save_and_is_queued_again(
    script: Path, tmp_path: Path
) -> None:
    script.write_text(SAVE)
    (tmp_path / "heard").mkdir()
    file = written(tmp_path, export_launch("sbatch", launch(script, backend="slurm")))
    environ = as_a_job(tmp_path) | {"HEARD": str(tmp_path / "heard")}
    job = subprocess.Popen(["bash", file], env=environ)
    while names(tmp_path / "heard") != ["0", "1"]:
        assert job.poll() is None
        time.sleep(0.05)
    job.send_signal(signal.SIGUSR1)  # to the batch shell alone, as the job asks
    job.wait()
    assert names(tmp_path / "heard") == ["0", "0.saved", "1", "1.saved"]
    assert (tmp_path / "heard.scontrol").read_text() == "requeue 77\n"


def test_a_form_for_one_back_end_refuses_another() -> None:
    assert backend_for("torchrun", None) == "torchrun"
    assert backend_for("torchrun", "torchrun") == "torchrun"
    assert backend_for("sbatch", "torchrun") == "slurm"
    assert backend_for("bash", "direct") == "direct"
    assert backend_for(None, None) is None
    with pytest.raises(InputError, match="--emit accelerate-config is for accelerate: leave out"):
        backend_for("accelerate-config", "direct")
