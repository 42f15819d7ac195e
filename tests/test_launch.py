"""Runs, from their start to their end: real processes, signals, and the real accelerate."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ddpfix.errors import InputError
from ddpfix.launchers.backends.command import Command
from ddpfix.launchers.gpus.model import Gpu, Inventory
from ddpfix.launchers.gpus.select import choose_devices
from ddpfix.launchers.planning.planner import PlanRequest
from ddpfix.launchers.running.run_folder import default_folder
from ddpfix.launchers.running.runner import run
from ddpfix.recipes.load import load
from ddpfix.record import replace
from launched import RECIPE

Machine = Callable[..., dict[str, str]]

ALL_REDUCE = """
import os, sys, torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
sys.stdout.write(f"rank {dist.get_rank()} of {dist.get_world_size()} sums to {total.item()}\\n")
sys.stderr.write("\\rstep 1\\rstep 2")
dist.destroy_process_group()
"""

# Each process says that it is there, in a file of its own, and stays.
STAY = """
import os, signal, sys, time
name = os.path.join(os.environ["HERE"], os.environ.get("RANK", "0"))
def hear(*_):
    open(name + ".heard", "w").close()
for word in sys.argv[-1].split(",") if sys.argv[-1].startswith("SIG") else ():
    signal.signal(getattr(signal, word), hear)
with open(name + ".part", "w") as file:
    file.write(str(os.getpid()))
os.rename(name + ".part", name)
while True:
    time.sleep(0.05)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to launch from, with a recipe of our own and a state folder beside it."""
    (tmp_path / "own.toml").write_text(RECIPE)
    (tmp_path / "here").mkdir()
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    monkeypatch.chdir(cwd)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HERE", str(tmp_path / "here"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


def write(place: Path, text: str) -> Path:
    script = place / "run.py"
    script.write_text(text)
    return script


def arguments(place: Path, *options: str, cpu: bool = True) -> list[str]:
    recipe = ["--recipe", str(place / "own.toml"), "--script", str(place / "run.py")]
    ddpfix = [sys.executable, "-m", "ddpfix", "launch"]
    return [*ddpfix, *recipe, *["--cpu"] * cpu, *options]


def launch(
    place: Path, *options: str, env: dict[str, str] | None = None, cpu: bool = True
) -> subprocess.CompletedProcess[str]:
    command = arguments(place, *options, cpu=cpu)
    return subprocess.run(command, env=env, capture_output=True, text=True)


def plain(script: Path, *words: str) -> Command:
    """One Python process, as the launcher would start it."""
    return Command((sys.executable, str(script), *words), {"PYTHONUNBUFFERED": "1"})


def record(folder: Path) -> dict[str, Any]:
    content = json.loads((folder / "run.json").read_text())
    assert isinstance(content, dict)
    return content


def alive(pid: int) -> bool:
    """Whether the process still runs; a zombie, which nobody has waited for yet, does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return status != "Z"


def until(condition: Callable[[], bool], launcher: subprocess.Popen[bytes] | None = None) -> None:
    """Wait for the condition, but no longer than the launcher it depends on lives."""
    for _ in range(6000):  # so that a failure does not hang the tests
        if condition():
            return
        assert launcher is None or launcher.poll() is None, "ended too early"
        time.sleep(0.02)
    pytest.fail("it never came about")


@pytest.fixture
def staying(place: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[bytes], list[int]]]]:
    """Launches ranks that stay and returns the launcher and the ranks' process ids."""
    started: list[subprocess.Popen[bytes]] = []
    pids: list[int] = []

    def start(world: int, *options: str) -> tuple[subprocess.Popen[bytes], list[int]]:
        write(place, STAY)
        output = ["--output", str(place / "out"), "--processes", str(world)]
        command = arguments(place, *output, *options)
        launcher = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        started.append(launcher)
        files = [place / "here" / str(rank) for rank in range(world)]
        until(lambda: all(file.exists() for file in files), launcher)
        pids.extend(int(file.read_text()) for file in files)
        return launcher, pids

    yield start
    for launcher in started:
        launcher.kill()
        launcher.wait()
        if launcher.stderr:
            launcher.stderr.close()
    for pid in filter(alive, pids):
        os.kill(pid, signal.SIGKILL)


# --- the whole way, with the real accelerate ---


def test_two_gloo_ranks_run_are_shown_kept_and_recorded_and_the_current_folder_stays_empty(
    place: Path,
) -> None:
    write(place, ALL_REDUCE)
    done = launch(place, "--", "--lr", "1e-3")
    assert done.returncode == 0, done.stderr

    lines = {line for line in done.stdout.splitlines() if line}
    assert lines == {"rank 0 of 2 sums to 3.0"}
    assert "Running 2 gloo processes on the CPU." in done.stderr
    assert "global batch 16 = 8 per device x 1 accumulated x 2 processes" in done.stderr

    [folder] = (place / "state" / "ddpfix" / "runs").iterdir()
    log = (folder / "log.txt").read_bytes().decode()
    assert log.count("sums to 3.0") == 2
    assert log.count("\rstep 1\rstep 2") == 2
    assert str(folder / "log.txt") in done.stderr

    run = record(folder)
    assert run["command"] in done.stderr
    assert run["argv"][-2:] == ["--lr", "1e-3"]
    assert run["plan"]["global_batch"] == 16
    assert (run["exit_status"], run["cause"], run["left_behind"]) == (0, "finished", 0)
    assert run["start"] < run["end"]
    assert {"ddpfix", "python", "torch", "accelerate"} <= set(run["versions"])

    assert list(Path.cwd().iterdir()) == []


def test_a_rank_that_fails_fails_the_run(place: Path) -> None:
    write(place, "import os, sys\nsys.exit(3 if os.environ['RANK'] == '1' else 0)\n")
    done = launch(place, "--output", str(place / "out"))
    assert done.returncode not in (0, 2)
    assert record(place / "out")["exit_status"] == done.returncode
    assert "exitcode  : 3" in (place / "out" / "log.txt").read_text()


def test_sigterm_ends_both_ranks_and_the_status_says_so(place: Path, staying: Any) -> None:
    launcher, pids = staying(2)
    launcher.terminate()
    launcher.communicate()
    assert launcher.returncode == 128 + signal.SIGTERM
    assert not any(map(alive, pids))
    assert record(place / "out")["cause"] == "stopped by SIGTERM"


def test_ranks_orphaned_by_a_killed_accelerate_are_stopped(place: Path, staying: Any) -> None:
    launcher, pids = staying(2)
    accelerate = int(Path(f"/proc/{pids[0]}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(accelerate, signal.SIGKILL)
    _, talk = launcher.communicate()
    assert launcher.returncode == 128 + signal.SIGKILL
    assert not any(map(alive, pids))
    assert record(place / "out")["left_behind"] == 2
    assert b"2 process(es) that were left behind" in talk


def test_killing_the_launcher_itself_leaves_no_rank_behind(place: Path, staying: Any) -> None:
    launcher, pids = staying(2)
    launcher.kill()
    launcher.communicate()
    until(lambda: not any(map(alive, pids)))
    until(lambda: record(place / "out")["cause"] == "its launcher was killed")


# --- one process: signals and endings ---


def test_ctrl_c_is_passed_on_and_the_status_is_130(staying: Any) -> None:
    launcher, pids = staying(1)
    launcher.send_signal(signal.SIGINT)
    launcher.communicate()
    assert launcher.returncode == 130
    assert not alive(pids[0])


def test_a_second_ctrl_c_kills_what_ignores_the_first(place: Path, staying: Any) -> None:
    launcher, pids = staying(1, "--grace", "100000", "--", "SIGINT,SIGTERM")
    launcher.send_signal(signal.SIGINT)
    # Two signals sent at once may arrive as one, and a third when nobody handles it any more.
    until((place / "here" / "0.heard").exists, launcher)
    launcher.send_signal(signal.SIGINT)
    launcher.communicate()
    assert launcher.returncode == 130
    assert not alive(pids[0])


def test_after_the_grace_what_ignores_the_signal_is_killed(place: Path, staying: Any) -> None:
    launcher, pids = staying(1, "--grace", "2", "--", "SIGINT,SIGTERM")
    launcher.terminate()
    launcher.communicate()
    assert launcher.returncode == 143
    assert (place / "here" / "0.heard").exists()
    assert not alive(pids[0])


def test_a_run_that_handles_the_signal_and_succeeds_has_succeeded(place: Path) -> None:
    here = place / "here" / "0"
    write(
        place,
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        f"pathlib.Path({str(here)!r}).touch()\n"
        "while True: time.sleep(0.05)\n",
    )
    launcher = subprocess.Popen(
        arguments(place, "--processes", "1"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until(here.exists, launcher)
    launcher.terminate()
    assert launcher.wait() == 0


@pytest.mark.parametrize(
    ("ending", "status", "cause"),
    [
        ("sys.exit(7)", 7, "failed with exit status 7"),
        ("raise ValueError", 1, "failed with exit status 1"),
        ("os.kill(os.getpid(), 11)", 139, "killed by SIGSEGV"),
        ("pass", 0, "finished"),
    ],
)
def test_the_status_is_the_scripts_own(ending: str, status: int, cause: str, place: Path) -> None:
    script = write(place, f"import os, sys\n{ending}\n")
    outcome = run(plain(script), place / "out")
    assert (outcome.status, outcome.cause) == (status, cause)
    assert record(place / "out")["exit_status"] == status


def test_a_background_process_of_the_script_does_not_outlive_it(place: Path) -> None:
    script = write(
        place,
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'],\n"
        "                         start_new_session=True)\n"
        "print(child.pid)\n",
    )
    outcome = run(plain(script), place / "out")
    assert (outcome.status, outcome.left_behind) == (0, 1)
    assert not alive(int((place / "out" / "log.txt").read_text()))


# --- output ---


def test_every_byte_goes_to_the_log_and_to_its_own_stream(
    place: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    script = write(
        place,
        "import sys\n"
        "for step in range(500):\n"
        "    sys.stderr.write(f'\\rstep {step}')\n"
        "sys.stdout.buffer.write(b'\\xff\\x00 no text' + b'x' * 300_000)\n",
    )
    run(plain(script), place / "out")
    shown = capfdbinary.readouterr()
    assert shown.err == b"".join(b"\rstep %d" % step for step in range(500))
    assert shown.out == b"\xff\x00 no text" + b"x" * 300_000
    log = (place / "out" / "log.txt").read_bytes()
    assert sorted(log) == sorted(shown.out + shown.err)


def test_a_progress_bar_is_shown_before_its_line_ends(place: Path) -> None:
    write(
        place,
        "import os, pathlib, sys, time\n"
        "sys.stderr.write('\\r 50%|bar')\n"
        "while not pathlib.Path(os.environ['HERE'], 'seen').exists(): time.sleep(0.02)\n",
    )
    launcher = subprocess.Popen(
        arguments(place, "--processes", "1"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert launcher.stderr is not None
    shown = b""
    while b" 50%|bar" not in shown:
        shown += os.read(launcher.stderr.fileno(), 1)
    (place / "here" / "seen").touch()
    launcher.communicate()
    assert launcher.returncode == 0


def test_a_reader_that_goes_away_ends_no_training(place: Path) -> None:
    write(place, "for line in range(20_000): print('line', line)\n")
    output = ["--output", str(place / "out"), "--processes", "1"]
    launcher = subprocess.Popen(
        arguments(place, *output), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert launcher.stdout is not None
    launcher.stdout.read(1)
    launcher.stdout.close()
    assert launcher.wait() == 0
    assert (place / "out" / "log.txt").read_text().splitlines()[-1] == "line 19999"


@pytest.mark.skipif(
    not os.access("/dev/full", os.W_OK), reason="needs /dev/full, a disk that is always full"
)
def test_a_full_disk_under_the_log_ends_no_training(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = place / "out"
    folder.mkdir()
    (folder / "log.txt").symlink_to("/dev/full")
    script = write(place, "print('still here')\n")
    assert run(plain(script), folder).status == 0
    shown = capfd.readouterr()
    assert shown.out == "still here\n"
    assert "No space left" in shown.err


# --- the run folder ---


def test_a_relative_xdg_state_home_is_ignored_as_its_specification_demands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = default_folder("r", {"XDG_STATE_HOME": "state"})
    assert folder.parents[3] == Path.home() / ".local"


def test_a_program_that_cannot_be_started_is_an_input_error_and_recorded(place: Path) -> None:
    with pytest.raises(InputError, match="no-such-program: cannot be started: No such file"):
        run(Command(("no-such-program",), {}), place / "out")
    assert record(place / "out")["exit_status"] == 2


# --- the command line, before anything runs ---


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    return line


def test_mistakes_are_one_line_each_and_leave_nothing_behind(place: Path) -> None:
    recipe = ["--recipe", "codegpt-bigclonebench"]
    assert "no such script" in one_line(launch(place))
    script = write(place, "")
    assert "dataset/train.txt is no file" in one_line(launch(place, *recipe))
    assert "did you mean" in one_line(launch(place, "--recipe", "codegpt"))
    assert "at least 1" in one_line(launch(place, "--processes", "0"))
    assert "global batch is 0" in one_line(launch(place, "--global-batch", "0"))
    assert "is no folder" in one_line(launch(place, "--output", str(script)))
    assert "whole number" in one_line(launch(place, "--", "--batch", "x"))
    again = one_line(launch(place, "--emit", "bash", "--max-restarts", "1"))
    assert "accelerate starts no rank again; use --launcher torchrun" in again
    assert not (place / "state").exists()
    assert list(Path.cwd().iterdir()) == []


def test_a_run_folder_with_a_record_is_not_written_over(place: Path) -> None:
    write(place, "")
    options = ("--processes", "1", "--output", str(place / "out"))
    assert launch(place, *options).returncode == 0
    before = (place / "out" / "run.json").read_text()
    assert "holds the record of another run" in one_line(launch(place, *options))
    assert (place / "out" / "run.json").read_text() == before


def test_a_dry_run_prints_the_command_alone_on_standard_output_and_writes_nothing(
    place: Path,
) -> None:
    write(place, "raise SystemExit('ran')")
    done = launch(place, "--dry-run", "--", "--batch", "4")
    assert done.returncode == 0
    [line] = done.stdout.splitlines()
    assert line.startswith("env CUDA_VISIBLE_DEVICES= ")
    assert "--accumulation 2" in line
    assert "Yours takes the place of the recipe's --batch 4" in done.stderr
    assert not (place / "state").exists()


def test_on_a_machine_with_cards_the_idle_ones_are_taken(place: Path, machine: Machine) -> None:
    write(place, "")
    environment = machine("count = 4\n1.used_mib = 30000\n")
    done = launch(place, "--dry-run", env=environment, cpu=False)
    assert "CUDA_VISIBLE_DEVICES=0,2,3 CUDA_DEVICE_ORDER=PCI_BUS_ID" in done.stdout
    assert "--num_processes 3" in done.stdout
    assert "Left out card 1: busy" in done.stderr
    assert "the nearest that can be had are 15 and 18" in done.stderr


def test_with_every_card_busy_it_stops_instead_of_crawling_on_the_cpu(
    place: Path, machine: Machine
) -> None:
    write(place, "")
    busy = machine("count = 1\n0.used_mib = 30000\n")
    line = one_line(launch(place, "--dry-run", env=busy, cpu=False))
    assert "card 0: busy" in line
    assert "--cpu" in line
    assert launch(place, "--dry-run", env=busy).returncode == 0


def test_a_driver_out_of_order_stops_it_too_but_a_missing_one_means_the_cpu(
    place: Path, machine: Machine
) -> None:
    write(place, "")
    mismatch = machine("count = 2\ninit = 18\n")
    line = one_line(launch(place, "--dry-run", env=mismatch, cpu=False))
    assert "reboot" in line
    assert "--cpu" in line
    missing = launch(place, "--dry-run", env=machine("init = 12\n"), cpu=False)
    assert missing.returncode == 0
    assert "Running 2 gloo processes on the CPU." in missing.stderr


def test_cards_hidden_by_the_user_mean_the_cpu_and_it_says_so(
    place: Path, machine: Machine
) -> None:
    write(place, "")
    environment = machine("count = 2\n", CUDA_VISIBLE_DEVICES="")
    done = launch(place, "--dry-run", env=environment, cpu=False)
    assert "hides every card" in done.stderr
    assert "Running 2 gloo processes on the CPU." in done.stderr
    assert "--num_processes 2" in done.stdout


def test_plan_prints_its_sentence_or_itself_as_json(place: Path) -> None:
    command = [sys.executable, "-m", "ddpfix", "plan", "--recipe", "codegpt-bigclonebench"]
    options = ["--cpu", "--processes", "2", "--global-batch", "64"]
    text = subprocess.run([*command, *options], capture_output=True, text=True)
    assert text.stdout.splitlines() == [
        "global batch 64 = 8 per device x 4 accumulated x 2 processes",
        "fp32: on the CPU",
    ]
    data = subprocess.run([*command, *options, "--json"], capture_output=True, text=True)
    plan = json.loads(data.stdout)["plan"]
    assert (plan["per_device"], plan["accumulation"], plan["exact"]) == (8, 4, True)


CARD = Gpu(0, "GPU-0", "Card", 80 << 30, 0, 80 << 30, (9, 0), 0, False, True, "")
PAIR = Inventory((CARD, replace(CARD, index=1)), "570", "")


def test_fewer_processes_than_cards_take_the_first_and_more_are_refused() -> None:
    assert [gpu.index for gpu in choose_devices(PAIR, 1).cards] == [0]
    assert [gpu.index for gpu in choose_devices(PAIR, None).cards] == [0, 1]
    with pytest.raises(InputError, match="--processes 3, but 2 cards can be used"):
        choose_devices(PAIR, 3)


def test_a_per_device_batch_of_the_users_keeps_the_global_batch() -> None:
    asked = PlanRequest(load("codegpt-bigclonebench"), Path("run.py"))
    plan = replace(asked, extra=("--train_batch_size", "2")).plan(2)
    assert (plan.per_device, plan.accumulation, plan.global_batch) == (2, 16, 64)
    assert replace(asked, global_batch=16, per_device=4).plan(2).accumulation == 2
    shared = replace(asked, per_device=22, shared=True).plan(3)
    assert [share.examples for share in shared.shares] == [22, 21, 21]
