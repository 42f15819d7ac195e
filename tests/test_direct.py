"""The back end of our own: what its ranks see, and how they end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ddpfix.launchers.backends.registry import launcher_command
from ddpfix.launchers.running.direct_launcher import hold_port, rank_variables
from launched import RECIPE

# Each rank says who it is, in a file of its own, and does as its last argument says.
RANK = """
import json, os, signal, sys, time
here, rank = sys.argv[1], os.environ["RANK"]
heard = []
def hear(number, _):
    heard.append(number)
    with open(os.path.join(here, rank + ".heard"), "w") as file:
        json.dump(heard, file)
for name in ("SIGTERM", "SIGINT") if "deaf" in sys.argv[2:] else ():
    signal.signal(getattr(signal, name), hear)
if "loader" in sys.argv[2:] and os.fork() == 0:
    with open(os.path.join(here, "loader" + rank), "w") as file:
        file.write(str(os.getpid()))
    time.sleep(1000)
with open(os.path.join(here, rank + ".part"), "w") as file:
    json.dump({"pid": os.getpid(), "env": dict(os.environ), "argv": sys.argv[2:]}, file)
os.rename(os.path.join(here, rank + ".part"), os.path.join(here, rank))
ending = dict(word.split(":") for word in sys.argv[2:] if ":" in word).get(rank)
while "stay" in sys.argv[2:] and not os.path.exists(os.path.join(here, "go")):
    time.sleep(0.02)
if ending:
    os.kill(os.getpid(), 9) if ending == "kill" else sys.exit(int(ending))
while "deaf" in sys.argv[2:]:
    time.sleep(0.02)
"""

ALL_REDUCE = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
rank, elastic = dist.get_rank(), dist.is_torchelastic_launched()
print(f"rank {rank} sums to {total.item()}; {elastic}\\n", end="")
dist.destroy_process_group()
"""

# Between torch's agent and its ranks: where an exception is left for it, the signals that it
# handles, and that it serves the store.
OF_THE_AGENT = {
    "TORCHELASTIC_ERROR_FILE",
    "TORCHELASTIC_SIGNALS_TO_HANDLE",
    "TORCHELASTIC_USE_AGENT_STORE",
}


class Started:
    """A launcher with two ranks that write into a folder."""

    def __init__(self, folder: Path, *words: str, world: int = 2) -> None:
        self.folder = folder
        script = folder / "rank.py"
        script.write_text(RANK)
        command = [*launcher_command("direct", world, 1, ()), str(script), str(folder), *words]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.world = world

    def ranks(self) -> dict[int, int]:
        """The process ids of the ranks, once all of them are there."""
        files = [self.folder / str(rank) for rank in range(self.world)]
        until(lambda: all(file.exists() for file in files))
        return {rank: json.loads(file.read_text())["pid"] for rank, file in enumerate(files)}

    def heard(self, rank: int) -> list[int]:
        """The signals a deaf rank got."""
        file = self.folder / f"{rank}.heard"
        numbers = json.loads(file.read_text()) if file.exists() else []
        assert isinstance(numbers, list)
        return numbers

    def end(self) -> tuple[int, str]:
        """The exit status and what was said."""
        _, said = self.process.communicate()
        return self.process.returncode, said


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Started]]:
    started: list[Started] = []

    def begin(*words: str, world: int = 2) -> Started:
        started.append(Started(tmp_path, *words, world=world))
        return started[-1]

    yield begin
    for one in started:
        one.process.kill()
        one.process.wait()
        if one.process.stderr:
            one.process.stderr.close()
    for file in [*tmp_path.glob("[0-9]"), *tmp_path.glob("loader*")]:
        content = json.loads(file.read_text())
        pid = content if isinstance(content, int) else content["pid"]
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    """Whether the process still runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(condition: Callable[[], bool]) -> None:
    """Wait for the condition; it never coming about is a failure, not a hanging test."""
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.02)
    pytest.fail("it never came about")


def environments(folder: Path, backend: str) -> list[dict[str, str]]:
    """What both ranks have in their environment under this back end."""
    folder.mkdir()
    (folder / "rank.py").write_text(RANK)
    command = [*launcher_command(backend, 2, 1, ()), str(folder / "rank.py"), str(folder)]
    environ = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(command, env=environ, check=True, capture_output=True)
    return [json.loads((folder / rank).read_text())["env"] for rank in ("0", "1")]


def test_ranks_see_what_torchrun_would_show_them(tmp_path: Path) -> None:
    ours = environments(tmp_path / "ours", "direct")
    theirs = environments(tmp_path / "theirs", "torchrun")
    for our, their in zip(ours, theirs, strict=True):
        apart = {name for name in our | their if our.get(name) != their.get(name)}
        assert apart == {"MASTER_PORT", *OF_THE_AGENT}
    assert ours[0]["MASTER_PORT"] == ours[1]["MASTER_PORT"]


def test_a_value_the_user_gave_nccl_is_kept() -> None:
    given = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}
    assert rank_variables(0, 2, 1, given) | given == rank_variables(0, 2, 1, given)


def test_two_gloo_ranks_meet_at_the_port_that_is_held_for_them(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text(ALL_REDUCE)
    command = [*launcher_command("direct", 2, 1, ()), str(tmp_path / "run.py")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = sorted(filter(None, done.stdout.splitlines()))
    assert lines == ["rank 0 sums to 3.0; True", "rank 1 sums to 3.0; True"]


def test_a_held_port_is_given_to_nobody_who_does_not_ask_for_it() -> None:
    with hold_port() as held, socket.socket() as other:
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", held.getsockname()[1]))
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", held.getsockname()[1]))  # as torch's store does
        other.listen()


def test_a_module_can_stand_for_the_script(tmp_path: Path) -> None:
    prefix = ("-m", "json.tool", "--compact")
    (tmp_path / "a.json").write_text("[1, 2]")
    command = [*launcher_command("direct", 1, 1, prefix), str(tmp_path / "a.json")]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "[1,2]\n"


def test_neither_torch_nor_what_reads_command_lines_is_imported() -> None:
    code = "import sys, ddpfix.launchers.running.direct_launcher; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert "ddpfix.launchers.running.direct_launcher" in loaded.split()
    assert not {"torch", "click", "attrs", "rich"} & set(loaded.split())


@pytest.mark.parametrize("words", [[], ["--processes"], ["--processes", "0", "run.py"], ["run.py"]])
def test_a_wrong_command_line_gets_the_usage(words: list[str]) -> None:
    command = [*launcher_command("direct", 2, 1, ())[:-2], *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")


@pytest.mark.parametrize(
    ("ending", "status", "said"),
    [
        ("1:kill", 137, "rank 1 ended with SIGKILL; the other ranks are stopped"),
        ("0:3", 3, "rank 0 ended with exit status 3; the other ranks are stopped"),
    ],
)
def test_a_rank_that_dies_takes_the_job_with_it(
    ending: str, status: int, said: str, start: Callable[..., Started]
) -> None:
    job = start("stay", "deaf", ending)  # the other one stays, and does not listen to SIGTERM
    pids = job.ranks()
    (job.folder / "go").touch()
    assert job.end() == (status, f"ddpfix: {said}\n")
    assert not any(map(alive, pids.values()))
    [other] = {0, 1} - {int(ending[0])}
    assert job.heard(other) == [signal.SIGTERM]


def test_of_two_that_fail_the_first_gives_the_status(start: Callable[..., Started]) -> None:
    job = start("stay", "0:4")
    pids = job.ranks()
    os.kill(pids[1], signal.SIGSEGV)
    until(lambda: not alive(pids[1]))
    (job.folder / "go").touch()
    status, said = job.end()
    assert status == 128 + signal.SIGSEGV
    assert "rank 1 ended with SIGSEGV" in said


def test_what_a_failed_rank_leaves_behind_ends_too(start: Callable[..., Started]) -> None:
    job = start("loader", "stay")
    pids = job.ranks()
    files = [job.folder / f"loader{rank}" for rank in (0, 1)]
    until(lambda: all(file.exists() and file.read_text() for file in files))
    loaders = [int(file.read_text()) for file in files]
    os.kill(pids[1], signal.SIGKILL)
    assert job.process.wait() == 137
    until(lambda: not any(map(alive, loaders)))
    assert not any(map(alive, pids.values()))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_reaches_every_rank_and_the_status_says_so(
    number: signal.Signals, start: Callable[..., Started]
) -> None:
    job = start("stay")
    pids = job.ranks()
    job.process.send_signal(number)
    status, said = job.end()
    assert status == 128 + number
    assert "ended with" not in said
    assert not any(map(alive, pids.values()))


def test_a_first_signal_is_passed_on_once_and_a_second_kills(start: Callable[..., Started]) -> None:
    job = start("stay", "deaf")
    pids = job.ranks()
    job.process.terminate()
    until(lambda: all(job.heard(rank) for rank in (0, 1)))
    assert [job.heard(0), job.heard(1)] == [[signal.SIGTERM], [signal.SIGTERM]]
    assert all(map(alive, pids.values()))
    job.process.terminate()
    assert job.end()[0] == 137
    assert not any(map(alive, pids.values()))


def test_ranks_that_save_and_succeed_after_a_signal_have_succeeded(
    start: Callable[..., Started],
) -> None:
    job = start("stay", "deaf", "0:0", "1:0")
    job.ranks()
    job.process.terminate()
    until(lambda: all(job.heard(rank) for rank in (0, 1)))
    (job.folder / "go").touch()
    assert job.end() == (0, "")


def test_a_killed_launcher_leaves_no_rank_behind(start: Callable[..., Started]) -> None:
    job = start("stay", "deaf")
    pids = job.ranks()
    job.process.kill()
    job.process.wait()
    until(lambda: not any(map(alive, pids.values())))


def test_signals_that_are_ignored_stay_ignored(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text(
        # One write for each rank: both share the pipe, and print() writes its end apart.
        "import signal, sys\n"
        "sys.stdout.write(f'{signal.getsignal(signal.SIGHUP) is signal.SIG_IGN}\\n')\n"
    )
    command = [*launcher_command("direct", 2, 1, ()), str(tmp_path / "run.py")]
    done = subprocess.run(["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *command], stdout=-1)
    assert done.stdout.split() == [b"True", b"True"]


def test_launched_by_ddpfix_a_signal_ends_its_ranks_and_is_on_record(tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(RANK.replace("sys.argv[1]", 'os.environ["HERE"]'))
    (tmp_path / "own.toml").write_text(RECIPE.replace("run.py", "rank.py"))
    (tmp_path / "here").mkdir()
    ddpfix = [sys.executable, "-m", "ddpfix", "launch", "--recipe", str(tmp_path / "own.toml")]
    options = ["--script", str(tmp_path / "rank.py"), "--output", str(tmp_path / "run"), "--cpu"]
    environ = os.environ | {"HERE": str(tmp_path / "here"), "XDG_STATE_HOME": str(tmp_path)}
    launcher = subprocess.Popen(
        [*ddpfix, *options, "--backend", "direct", "--", "stay"],
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    files = [tmp_path / "here" / rank for rank in ("0", "1")]
    until(lambda: all(file.exists() for file in files) or launcher.poll() is not None)
    pids = [json.loads(file.read_text())["pid"] for file in files]
    launcher.terminate()
    _, said = launcher.communicate()
    assert launcher.returncode == 128 + signal.SIGTERM, said
    assert not any(map(alive, pids))
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["cause"] == "stopped by SIGTERM"
    assert {"ddpfix.launchers.running.direct_launcher", "torch"} <= {
        *record["argv"],
        *record["versions"],
    }
