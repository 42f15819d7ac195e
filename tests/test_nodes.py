"""Two machines that train together: real ones as far as the network goes, each a namespace."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from ddpfix.cli import ddpfix
from ddpfix.errors import InputError
from ddpfix.fixtures.tiny import build_clone_data, build_model, clone_arguments, copy_family
from ddpfix.launchers.backends.command import ProcessOptions, ScriptCall, build
from ddpfix.launchers.backends.nodes import Nodes, nodes_from_options
from ddpfix.launchers.backends.rendezvous import Rendezvous
from ddpfix.launchers.planning.plan import solve
from ddpfix.launchers.running.policy import SupervisionPolicy
from ddpfix.patcher.engine.patch import patch
from ddpfix.recipes.parse import parse
from faults import TRAIN
from launched import RECIPE

ADDRESSES = ("10.77.0.1", "10.77.0.2")
FLAGS = {
    '"--batch"': '"--train_batch_size"',
    '"--eval_batch"': '"--eval_batch_size"',
    '"--accumulation"': '"--gradient_accumulation_steps"',
    '"--out"': '"--output_dir"',
}
TOLERANCE = 1e-5  # relative, fp32, as the contract has it

# Every rank says that it is there and works on, each step with all the others.
TOGETHER = """
import os, time, torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
name = os.path.join(os.environ["HERE"], os.environ["RANK"])
with open(name + ".part", "w") as file:
    file.write(f"{os.getpid()} {total.item():g} {os.environ['MASTER_ADDR']}")
os.rename(name + ".part", name)
while True:
    dist.all_reduce(total)
    time.sleep(0.02)
"""


def plain(count: int, rank: int | None = None, where: str | None = None, job: bool = False) -> str:
    """What is said of the machines, or why they are refused."""
    try:
        return nodes_from_options(count, rank, where, job=job).summary
    except InputError as error:
        return str(error)


# --- what is told and asked ---


@pytest.mark.parametrize(
    ("told", "answer"),
    [
        pytest.param((1,), "", id="one machine"),
        pytest.param((2, None, None, True), "2 machines, each with as many", id="a job's"),
        pytest.param((2, 0, "127.0.0.1"), "Machine 0 of 2, at 127.0.0.1: they meet at 127.0.0.1:"),
        pytest.param((2, 1, "127.0.0.1:7"), "Machine 1 of 2, at 127.0.0.1: they meet at 127.0.0.1"),
        pytest.param((1, 0, None), "--node-rank 0: leave it out, it is for --nnodes 2 or more"),
        pytest.param((1, None, "a:1"), "--rdzv a:1: leave it out, it is for --nnodes 2 or more"),
        pytest.param((2, 0, None, True), "--node-rank 0: leave it out, the batch system says it"),
        pytest.param((2, None, "a"), "--nnodes 2: --node-rank is missing; run this on each"),
        pytest.param((2, 0, None), "--nnodes 2: --rdzv is missing; run this on each machine"),
        pytest.param((2, 2, "127.0.0.1"), "--node-rank 2: of 2 machines the last is 1"),
        pytest.param((2, 0, "a:b"), "--rdzv a:b: write it as HOST or HOST:PORT"),
        pytest.param((2, 0, "a:0"), "--rdzv a:0: write it as HOST or HOST:PORT"),
        pytest.param((2, 0, "a:70000"), "--rdzv a:70000: write it as HOST or HOST:PORT"),
        pytest.param((2, 0, "no.such.invalid"), "--rdzv no.such.invalid: cannot be reached: "),
        pytest.param((2, 0, "localhost"), "--rdzv localhost: localhost is 127.0.0.1 here"),
    ],
)
def test_the_machines_are_told_or_refused(told: tuple[Any, ...], answer: str) -> None:
    assert plain(*told).startswith(answer)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A script whose ranks meet, with a recipe beside it."""
    (tmp_path / "own.toml").write_text(RECIPE)
    (tmp_path / "here").mkdir()
    (tmp_path / "run.py").write_text(TOGETHER)
    return tmp_path / "run.py"


def options(script: Path, *more: str) -> list[str]:
    recipe = ["--recipe", str(script.with_name("own.toml")), "--script", str(script)]
    return ["launch", *recipe, "--cpu", *more]


def test_the_command_of_each_machine_is_printed_with_all_that_it_needs(script: Path) -> None:
    words = options(script, "--processes", "2", "--nnodes", "2", "--rdzv", "127.0.0.1:7")
    for rank, is_host in (("0", 1), ("1", 0)):
        more = ["--node-rank", rank, "--output", str(script.with_name("out")), "--dry-run"]
        done = CliRunner(env={"OMP_NUM_THREADS": "3"}).invoke(ddpfix, [*words, *more])
        assert done.exit_code == 0, done.output
        assert "OMP_NUM_THREADS=3 PYTHONUNBUFFERED=1 GLOO_SOCKET_IFNAME=lo " in done.stdout, (
            done.stdout
        )
        assert (
            "--nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --log-dir /dev/null "
            "--rdzv-endpoint 127.0.0.1:7 "
            "--rdzv-id 2-machines-x-2-processes-batch-4-accumulation-1-global-16 "
            f"--rdzv-conf is_host={is_host},join_timeout=600,read_timeout=600 "
            f"--local-addr 127.0.0.1 --max-restarts 0 -- {script} --batch 4 --eval_batch 4 "
            f"--accumulation 1 --out {script.with_name('out') / 'made'}\n"
        ) in done.stdout
        assert f"Machine {rank} of 2" in done.stderr
        assert "16 = 4 per device x 1 accumulated x 4 processes" in done.stderr


@pytest.mark.parametrize(
    ("more", "answer"),
    [
        ([], "--nnodes 2: pass --output, a folder that all machines share"),
        (["--output", "o", "--backend", "direct"], "--nnodes 2 is for torchrun, direct starts"),
        (["--output", "o", "--emit", "accelerate-config"], "--nnodes 2 is for torchrun, accel"),
    ],
)
def test_what_several_machines_cannot_do_is_refused(
    more: list[str], answer: str, script: Path
) -> None:
    words = options(script, "--nnodes", "2", "--node-rank", "0", "--rdzv", "127.0.0.1", *more)
    done = CliRunner().invoke(ddpfix, words)
    assert done.exit_code == 2
    assert answer in done.stderr


def test_a_machine_asks_for_as_many_cards_as_it_runs_processes(script: Path) -> None:
    own, plan = parse(RECIPE, source="own.toml", name="own"), solve(4, 16, 8)
    meeting = Rendezvous(1, "::1", 7, "::1", None)
    two = Nodes(2, meeting)
    call = ScriptCall(own, script, plan, Path("/r"))
    command = build(call, ProcessOptions([0, 1], nodes=two), environ={})
    assert command.env["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert "GLOO_SOCKET_IFNAME" not in command.env
    assert "[::1]:7" in command.argv
    with pytest.raises(InputError, match="2 processes need as many cards, but 4"):
        build(call, ProcessOptions(range(4), nodes=two), environ={})


def test_the_users_own_interface_is_kept_and_one_machine_alone_decides_nothing() -> None:
    two = nodes_from_options(2, 0, "127.0.0.1")
    assert two.variables({}) == {"GLOO_SOCKET_IFNAME": "lo"}
    assert two.variables({"GLOO_SOCKET_IFNAME": "eth7"}) == {}
    assert SupervisionPolicy(grace=7).for_machines(two.count) == SupervisionPolicy(
        grace=7, hang_after=0, retry=False, learned=False
    )
    assert SupervisionPolicy(hang_after=9).for_machines(two.count).hang_after == 9
    alone = SupervisionPolicy(max_restarts=3)
    assert alone.for_machines(Nodes().count) == alone


# --- two machines ---


def lacking() -> str:
    """Why there can be no two machines here, if so."""
    for program in ("ip", "nsenter", "unshare"):
        if not shutil.which(program):
            return f"there is no {program}: install iproute2 and util-linux"
    cable = ["ip", "link", "add", "cable", "type", "veth", "peer", "name", "other"]
    made = subprocess.run(["unshare", "--net", *cable], capture_output=True, text=True)
    return made.stderr.strip()


needs_two = pytest.mark.skipif(bool(lacking()), reason=f"no network namespaces: {lacking()}")


@pytest.fixture
def machines() -> Iterator[list[list[str]]]:
    """What to put before a command for it to run on the one or the other of two machines.

    Each is a network namespace, which vanishes with the process that stays in it.
    """
    stay = ["unshare", "--net", "sh", "-c", "echo; exec sleep 3600"]
    holders = [subprocess.Popen(stay, stdout=subprocess.PIPE) for _ in ADDRESSES]
    enter = [["nsenter", f"--net=/proc/{holder.pid}/ns/net", "--"] for holder in holders]
    try:
        for holder in holders:
            assert holder.stdout is not None
            holder.stdout.readline()  # it is in its namespace
        cable = f"ip link add cable type veth peer name cable netns {holders[1].pid}".split()
        subprocess.run([*enter[0], *cable], check=True)
        for words, address in zip(enter, ADDRESSES, strict=True):
            for line in ("link set lo up", f"addr add {address}/24 dev cable", "link set cable up"):
                subprocess.run([*words, "ip", *line.split()], check=True)
        yield enter
    finally:
        for holder in holders:
            holder.kill()
            holder.communicate()


class Launchers:
    """A launch on each machine; `said` is what each of them printed, once they have ended."""

    def __init__(self, machines: list[list[str]], script: Path, *more: str) -> None:
        shared = ["--nnodes", "2", "--rdzv", ADDRESSES[0], "--processes", "1"]
        shared += ["--output", str(script.with_name("out"))]
        self._logs = [script.with_name(f"said-{rank}") for rank in (0, 1)]
        self.processes = []
        for rank, (machine, log) in enumerate(zip(machines, self._logs, strict=True)):
            words = options(script, *shared, "--node-rank", str(rank), *more)
            told = {"HERE": str(script.with_name("here")), "OMP_NUM_THREADS": "1"}
            with log.open("w") as file:
                one = subprocess.Popen(
                    [*machine, sys.executable, "-m", "ddpfix", *words],
                    cwd=script.parent,
                    env=os.environ | told,
                    stdout=file,
                    stderr=file,
                )
            self.processes.append(one)

    def __enter__(self) -> Launchers:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.processes:
            one.terminate()
            one.wait()

    @property
    def said(self) -> str:
        return "\n".join(log.read_text() for log in self._logs)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for it, but no longer than all of them live."""
        while not condition():
            assert all(one.poll() is None for one in self.processes), self.said
            time.sleep(0.05)

    def statuses(self) -> list[int]:
        """How they end; once one has failed the other has to."""
        return [one.wait() for one in self.processes]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@needs_two
def test_a_rank_killed_on_one_machine_ends_the_run_on_both(
    script: Path, machines: list[list[str]]
) -> None:
    here = script.with_name("here")
    with Launchers(machines, script) as launchers:
        launchers.until(lambda: sorted(path.name for path in here.iterdir()) == ["0", "1"])
        ranks = [(here / name).read_text().split() for name in "01"]
        # Both have heard of both, at an address that both can reach.
        assert {(total, address) for _, total, address in ranks} == {("3", ADDRESSES[0])}
        pids = [int(pid) for pid, *_ in ranks]
        os.kill(pids[1], signal.SIGKILL)
        assert launchers.statuses() == [1, 1], launchers.said
    assert not any(map(alive, pids))
    for rank in (0, 1):
        record = json.loads(script.with_name("out").joinpath(f"node-{rank}/run.json").read_text())
        assert record["exit_status"] == 1
        assert record["left_behind"] == 0
        assert record["machines"]["count"] == 2
        assert record["machines"]["meeting"]["address"] == ADDRESSES[rank]


@needs_two
def test_a_rank_killed_on_one_machine_is_started_again_to_the_same_parameters(
    script: Path, machines: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Who is started again has to find the others of its own start, as any training has.
    script.write_text(
        "import torch.distributed as dist\ndist.init_process_group('gloo')\n"
        f"{TRAIN}\ndist.barrier()\ndist.destroy_process_group()\n"
    )
    monkeypatch.setenv("FAULT", "kill:1:3")
    with Launchers(machines, script, "--max-restarts", "1") as launchers:
        assert launchers.statuses() == [0, 0], launchers.said
    assert (script.with_name("here") / "struck").exists()
    record = json.loads(script.with_name("out").joinpath("node-1/run.json").read_text())
    assert len(record["attempts"]) == 1
    assert "--max-restarts 1 " in record["command"]
    assert "--resume" in record["argv"]

    monkeypatch.delenv("FAULT")
    script.write_text(TRAIN)
    alone = script.with_name("alone")
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), "--batch", "8", "--out", str(alone)],
            env=os.environ | {"HERE": str(script.with_name("here"))} | ranked,
        )
        for ranked in ({"RANK": str(rank), "WORLD_SIZE": "2"} for rank in (0, 1))
    ]
    assert [rank.wait() for rank in ranks] == [0, 0]
    made = script.with_name("out") / "made"
    for name in ("state0.json", "state1.json"):
        assert json.loads((made / name).read_text()) == json.loads((alone / name).read_text())


@needs_two
def test_two_machines_train_what_one_process_does(
    tmp_path: Path, machines: list[list[str]]
) -> None:
    script = copy_family("bigclonebench", tmp_path)
    patch(script, exact=True).write()
    model = build_model(tmp_path / "model", "gpt2", dropout=0.0)
    data = build_clone_data(tmp_path / "data", train=37, valid=13, test=11)  # nothing divides
    arguments = [
        word
        for word in clone_arguments(model, data, tmp_path, "gpt2", batch=8, epochs=1)
        if not word.startswith(("--output_dir", "--train_batch", "--eval_batch", "--gradient"))
    ]
    recipe = RECIPE
    for ours, its in FLAGS.items():
        recipe = recipe.replace(ours, its)
    (tmp_path / "own.toml").write_text(recipe)
    with Launchers(machines, script, "--", *arguments) as launchers:
        assert launchers.statuses() == [0, 0], launchers.said

    alone = options(script, "--processes", "1", "--output", str(tmp_path / "alone"), "--")
    subprocess.run([sys.executable, "-m", "ddpfix", *alone, *arguments], check=True)
    one, two = (tmp_path / name / "made" for name in ("alone", "out"))
    kept = Path("checkpoint-best-f1", "model.bin")
    weights = [torch.load(folder / kept, map_location="cpu") for folder in (one, two)]
    assert weights[0].keys() == weights[1].keys()
    for name, value in weights[0].items():
        torch.testing.assert_close(weights[1][name], value, rtol=TOLERANCE, atol=TOLERANCE)
    predictions = [(folder / "predictions.txt").read_text() for folder in (one, two)]
    assert predictions[0] == predictions[1]
    assert len(predictions[0].splitlines()) == 11
