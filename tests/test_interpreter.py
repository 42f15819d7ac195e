"""Ranks in another Python than ddpfix's own: an environment, and programs that are no Python."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from command_line import run
from ddpfix.errors import InputError
from ddpfix.launchers.backends.interpreter import active_interpreter, read_interpreter
from ddpfix.launchers.backends.registry import launcher_command

SCRIPT = """
import argparse, os, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=8)
    opt = parser.parse_args()
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(2, 1))
    data = TensorDataset(torch.zeros(32, 2))
    sampler = DistributedSampler(data)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(1):
        sampler.set_epoch(epoch)
        for (x,) in DataLoader(data, batch_size=opt.batch_size, sampler=sampler):
            model(x).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    sys.stdout.write(f"rank {dist.get_rank()} in {sys.prefix}\\n")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with this one's packages, and none of its programs."""
    folder = tmp_path_factory.mktemp("other") / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = folder / "lib" / version / "site-packages"
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    return tmp_path


def pretend(folder: Path, answer: str) -> Path:
    """A program that answers this in the place of a Python."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\n")
    program.chmod(0o755)
    return program


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("backend", ["accelerate", "torchrun"])
def test_two_ranks_run_in_the_other_python(other: Path, backend: str) -> None:
    program = other / "bin" / "python"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ddpfix", "launch", "--cpu", "--python", str(program)),
            *("--backend", backend, "--no-rank-logs", "--unchecked", "train.py"),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    ranks = sorted(line for line in done.stdout.splitlines() if line.startswith("rank "))
    assert ranks == [f"rank {rank} in {other}" for rank in range(2)]
    assert f"The ranks run in {program} (Python 3." in done.stderr


def test_the_active_environment_runs_the_ranks(
    here: Path, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", str(other))
    words = shlex.split(run("launch", "--dry-run", "--cpu", "train.py").stdout)
    assert str(other / "bin" / "python") in words
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    words = shlex.split(run("launch", "--dry-run", "--cpu", "train.py").stdout)
    assert str(other / "bin" / "python") not in words
    (here / "bin").mkdir()
    pretend(here / "bin", '{"python": [3, 11]}')  # no torch: ddpfix's own stays
    assert active_interpreter({"VIRTUAL_ENV": str(here)}) is None


@pytest.mark.usefixtures("here")
def test_an_interpreter_that_the_command_names_runs_the_ranks(other: Path) -> None:
    program = str(other / "bin" / "python")
    words = shlex.split(run("launch", "--dry-run", "--cpu", "--", program, "train.py").stdout)
    assert program in words


def test_an_old_torch_gets_the_options_that_it_knows(tmp_path: Path) -> None:
    program = pretend(tmp_path, json.dumps({"python": [3, 8], "torch": "1.13.1+cu117"}))
    old = read_interpreter(str(program))
    assert old.backend == "torchrun"
    words = launcher_command("torchrun", 2, 1, (), other=old)
    assert words[:3] == [str(program), "-m", "torch.distributed.run"]
    assert words[words.index("--nproc_per_node") + 1] == "2"
    assert "/dev/null" not in words  # in which its torch elastic would make a folder
    assert not [word for word in words if word.startswith("--") and "-" in word[2:]]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ('{"python": [3, 7]}', "Python 3.7; 3.8 is needed"),
        ('{"python": [3, 11]}', "torch is not installed there"),
        ('{"python": [3, 8], "torch": "1.12.1"}', "torch 1.12.1; 1.13 is needed"),
        ("hello", "it does not answer as a Python does"),
        ("[]", "it does not answer as a Python does"),
    ],
)
def test_a_python_that_cannot_serve_is_refused(tmp_path: Path, answer: str, message: str) -> None:
    program = pretend(tmp_path, answer)
    with pytest.raises(InputError) as refused:
        read_interpreter(str(program))
    assert str(refused.value) == f"--python {program}: {message}"


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--backend", "direct"), "--backend direct: it runs in ddpfix's own Python"),
        (("--probe", "1"), "--probe runs in ddpfix's own Python"),
    ],
)
def test_what_runs_in_our_own_python_alone_is_refused(
    other: Path, options: tuple[str, ...], message: str
) -> None:
    program = str(other / "bin" / "python")
    refused = run("launch", "--cpu", "--unchecked", "--python", program, *options, "train.py")
    assert refused.exit_code == 2
    assert message in refused.stderr


def test_a_program_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="--python nowhere/python: no such program"):
        read_interpreter("nowhere/python")
