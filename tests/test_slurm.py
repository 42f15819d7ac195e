"""Jobs for Slurm: queued, told of their end, queued again, on a real Slurm of two nodes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import frozen
from click.testing import CliRunner
from ddpfix.cli import ddpfix
from ddpfix.errors import InputError
from ddpfix.launchers.running.recovery import with_resume_flags
from ddpfix.launchers.running.slurm import submit
from launched import RECIPE

# Trains for ever, until it is told to save; once resumed it takes twenty steps more.
TRAINING = """
import argparse, os, signal, time, torch
import torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument("--out")
parser.add_argument("--save_total_limit", type=int, default=0)
parser.add_argument("--resume", action="store_true")
args, _ = parser.parse_known_args()
asked = []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
dist.init_process_group("gloo")
rank, kept = dist.get_rank(), os.path.join(args.out, "step")
step = int(open(kept).read()) if args.resume and os.path.exists(kept) else 0
end = step + 20 if step else float("inf")
print(f"rank {rank} of {dist.get_world_size()} on {os.environ['SLURMD_NODENAME']}: step {step}")
while step < end:
    told = torch.tensor([float(len(asked))])
    dist.all_reduce(told)
    if told.item():
        if rank == 0 and args.save_total_limit:
            os.makedirs(args.out)
            open(kept, "w").write(str(step))
        print(f"rank {rank} saves step {step}")
        break
    step += 1
    time.sleep(0.05)
else:
    print(f"rank {rank} ends with step {step}")
dist.barrier()
dist.destroy_process_group()
"""

PROGRAMS = {
    "unshare": "util-linux",
    "ip": "iproute2",
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
}
NODES = ("n1", "n2")
ALONE = ["unshare", "--net", "--mount", "--propagation", "private"]
ALONE += ["--pid", "--fork", "--kill-child"]


def lacking() -> str:
    """Why there can be no Slurm here, if so."""
    for program, package in PROGRAMS.items():
        if not shutil.which(program):
            return f"there is no {program}: install {package}"
    cable = ["ip", "link", "add", "here", "type", "veth", "peer", "name", "there"]
    return subprocess.run([*ALONE, *cable], capture_output=True, text=True).stderr.strip()


needs_slurm = pytest.mark.skipif(bool(lacking()), reason=f"no Slurm: {lacking()}")


@frozen
class Slurm:
    """A Slurm that runs: what to put before a command, and its folder."""

    enter: list[str]
    folder: Path

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        told = {"SLURM_CONF": str(self.folder / "slurm.conf"), "OMP_NUM_THREADS": "1"}
        environ = os.environ | told
        return subprocess.run([*self.enter, *words], env=environ, capture_output=True, text=True)

    def lines(self, file: Path, beginnings: list[str]) -> list[str]:
        """The first lines of a log with these beginnings, once all are there."""
        for _ in range(1200):  # so that a failure does not hang the tests
            said = file.read_text().splitlines() if file.exists() else []
            found = [[line for line in said if line.startswith(words)] for words in beginnings]
            if all(found):
                return [lines[0] for lines in found]
            time.sleep(0.1)
        queue = self.run("scontrol", "show", "job").stdout
        pytest.fail("\n".join([f"not all of {beginnings} in:", *said, queue]))


@pytest.fixture
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    folder = tmp_path_factory.mktemp("slurm")
    script = Path(__file__).parent / "slurm" / "cluster.sh"
    command = [*ALONE, "bash", str(script), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as cluster:
        assert cluster.stdout is not None
        pid = int(cluster.stdout.readline())
        try:
            made = Slurm(["nsenter", "-t", str(pid), "-m", "-n", "-p", "--"], folder)
            idle = ("sinfo", "--noheader", "--states=idle", "--format=%D")
            while made.run(*idle).stdout.strip() != "2":
                assert cluster.poll() is None, "Slurm has ended"
                time.sleep(0.2)
            yield made
        finally:
            cluster.kill()  # and, by --kill-child, all that is in its namespace


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "own.toml").write_text(RECIPE)
    (tmp_path / "run.py").write_text(TRAINING)
    return tmp_path / "run.py"


def options(script: Path, *more: str) -> list[str]:
    recipe = ["--recipe", str(script.with_name("own.toml")), "--script", str(script)]
    return ["launch", *recipe, "--cpu", "--processes", "1", "--output", f"{script}.out", *more]


# --- what is refused, and what a script is told ---


@pytest.mark.parametrize(
    ("more", "answer"),
    [
        (["--submit", "--emit", "bash"], "--submit queues a job of --emit sbatch: leave out --emi"),
        (["--sbatch=--time=60"], "--sbatch --time=60: it is for --submit"),
        (
            ["--submit", "--backend", "direct"],
            "--emit sbatch is for torchrun: leave out --launcher",
        ),
        (["--submit", "--nnodes", "2", "--node-rank", "0"], "--node-rank 0: leave it out, the ba"),
    ],
)
def test_what_contradicts_a_job_is_refused(more: list[str], answer: str, script: Path) -> None:
    done = CliRunner().invoke(ddpfix, options(script, *more))
    assert done.exit_code == 2
    assert answer in done.stderr
    assert not Path(f"{script}.out").exists()


def test_without_sbatch_a_job_is_refused_and_nothing_written(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="--submit: there is no sbatch here; --emit sbatch prints"):
        submit("", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_dry_run_shows_the_job_and_queues_nothing(script: Path) -> None:
    done = CliRunner().invoke(ddpfix, options(script, "--submit", "--dry-run", "--nnodes", "3"))
    assert done.exit_code == 0, done.output
    assert "#SBATCH --nodes=3\n#SBATCH --ntasks-per-node=1\n" in done.stdout
    assert "    --nproc-per-node 1 \\\n" in done.stdout
    assert "--resume \\\n    --save_total_limit 1 &\n" in done.stdout
    assert not Path(f"{script}.out").exists()


@pytest.mark.parametrize(
    ("declared", "mine", "added"),
    [
        (["--resume", "--save_total_limit"], [], {"--resume": None, "--save_total_limit": "1"}),
        (["--resume", "--save_total_limit"], ["--save_total_limit"], {"--resume": None}),
        (["--resume"], [], {}),
        (["--save_total_limit"], [], {}),
    ],
    ids=str,
)
def test_a_script_that_keeps_checkpoints_is_told_to_and_to_go_on_from_them(
    declared: list[str], mine: list[str], added: dict[str, str | None]
) -> None:
    assert with_resume_flags(declared, mine, {"--amp": "bf16"}) == {"--amp": "bf16", **added}


# --- a real Slurm ---


@needs_slurm
def test_a_job_on_two_nodes_saves_when_told_and_goes_on_once_it_is_queued_again(
    script: Path, slurm: Slurm
) -> None:
    folder = Path(f"{script}.out")
    launch = [sys.executable, "-m", "ddpfix", *options(script, "--nnodes", "2", "--submit")]

    refused = slurm.run(*launch, "--sbatch=--partition=other")
    assert refused.returncode == 2
    assert "sbatch refuses the job: Batch job submission failed: Invalid part" in refused.stderr
    assert not folder.exists()

    queued = slurm.run(*launch, "--sbatch=--time=10", "--sbatch=--comment=two words")
    assert queued.returncode == 0, queued.stderr
    number = queued.stdout.strip()
    job = slurm.run("scontrol", "show", "job", number).stdout
    assert "NumNodes=2" in job
    assert "TimeLimit=00:10:00" in job
    assert "Comment=two words" in job
    assert slurm.run(*launch).returncode == 2, "two jobs in one folder"

    log = folder / "log.txt"
    began = slurm.lines(log, ["rank 0 of 2 on ", "rank 1 of 2 on "])
    assert sorted(line.split()[-3:] for line in began) == [[f"{n}:", "step", "0"] for n in NODES]
    # As Slurm does short of the time limit, for the job's --signal=B:USR1.
    slurm.run("scancel", "--batch", "--signal=USR1", number)
    saved = slurm.lines(log, ["rank 0 saves step ", "rank 1 saves step "])
    steps = {int(line.split()[-1]) for line in saved}
    assert len(steps) == 1
    ended = slurm.lines(log, ["rank 0 ends with step ", "rank 1 ends with step "])
    assert {int(line.split()[-1]) - 20 for line in ended} == steps
    assert "Restarts=1" in slurm.run("scontrol", "show", "job", number).stdout
