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


LEGACY = """
import argparse, os, random
import numpy as np
import torch
from torch.utils.data import DataLoader, RandomSampler, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--batch_size", type=int, default=8)
    args = parser.parse_args()
    random.seed(7)
    np.random.seed(7)
    torch.manual_seed(7)
    os.makedirs(args.output_dir, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = torch.nn.Linear(4, 2)
    model.to(device)
    model = torch.nn.DataParallel(model)
    data = TensorDataset(torch.randn(32, 4), torch.arange(32) % 2)
    loader = DataLoader(data, sampler=RandomSampler(data), batch_size=args.batch_size)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(1):
        model.train()
        for inputs, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(inputs.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    torch.save(model.module.state_dict(), os.path.join(args.output_dir, "model.bin"))


if __name__ == "__main__":
    main()
"""
OURS = ("attr", "cattr", "click", "rich", "libcst")
"""Packages that ddpfix needs, and the ranks may lack."""


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with this one's packages, and none of its programs."""
    folder = tmp_path_factory.mktemp("other") / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = folder / "lib" / version / "site-packages"
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment without ddpfix and what it needs: the ranks have torch alone."""
    folder = tmp_path_factory.mktemp("bare") / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = folder / "lib" / version / "site-packages"
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.lower().startswith((*OURS, "_", "ddpfix")) and path.suffix != ".pth":
            (packages / path.name).symlink_to(path)
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
def test_two_ranks_of_accelerate_run_in_the_other_python(other: Path) -> None:
    program = other / "bin" / "python"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ddpfix", "launch", "--cpu", "--python", str(program)),
            *("--backend", "accelerate", "--no-rank-logs", "--unchecked", "train.py"),
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


def ddpfix(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "ddpfix", *words], capture_output=True, text=True)


@pytest.mark.parametrize("package", OURS)
def test_the_bare_environment_lacks_what_ddpfix_needs(bare: Path, package: str) -> None:
    asked = f"import importlib.util as u; print(u.find_spec({package!r}))"
    done = subprocess.run(
        [bare / "bin" / "python", "-I", "-c", asked], capture_output=True, text=True
    )
    assert done.stdout == "None\n"


def test_a_verification_runs_in_the_other_python(here: Path, bare: Path) -> None:
    (here / "legacy.py").write_text(LEGACY)
    program, kept = bare / "bin" / "python", here / "kept"
    done = ddpfix(
        *("verify", "--python", str(program), "--world-sizes", "1,2", "--accumulation", "1"),
        *("--keep", str(kept), "legacy.py", "--", "--output_dir", "out", "--batch_size", "8"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"The ranks run in {program} (Python 3." in done.stderr
    assert len(list(kept.glob("runs/x2/trace/rank*.jsonl"))) == 2


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("backend", [None, "torchrun"])
def test_a_probe_runs_in_the_other_python(bare: Path, backend: str | None) -> None:
    program = bare / "bin" / "python"
    chosen: tuple[str, ...] = ("plan",)
    if backend:
        chosen = ("launch", "--unchecked", "--no-rank-logs", "--backend", backend)
    processes = "1" if backend else "2"
    probe = ("--cpu", "--processes", processes, "--probe", "1", "--python", str(program))
    done = ddpfix(*chosen, *probe, "train.py")
    assert done.returncode == 0, done.stderr
    if backend:  # behind the probe, the run itself
        ranks = [line for line in done.stdout.splitlines() if line.startswith("rank ")]
        assert ranks == [f"rank 0 in {bare}"]
    assert f"The ranks run in {program} (Python 3." in done.stderr
    assert "Timing 1 optimizer steps" in done.stderr
    assert "as measured with" in done.stdout + done.stderr


@pytest.mark.usefixtures("here")
def test_the_direct_back_end_starts_the_other_python(bare: Path) -> None:
    program = bare / "bin" / "python"
    chosen = ("--cpu", "--backend", "direct", "--python", str(program), "--no-rank-logs")
    done = ddpfix("launch", *chosen, "--unchecked", "train.py")
    assert done.returncode == 0, done.stderr
    ranks = sorted(line for line in done.stdout.splitlines() if line.startswith("rank "))
    assert ranks == [f"rank {rank} in {bare}" for rank in range(2)]


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
    assert "--local_addr" not in words
    assert "127.0.0.1" not in words


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


def test_a_program_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="--python nowhere/python: no such program"):
        read_interpreter("nowhere/python")
